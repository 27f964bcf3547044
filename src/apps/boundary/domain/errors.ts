import { TallymanError } from '../../../engine/errors.ts';

/** Codes as gRPC and Connect have them, in the words of this product's other codes. */
export type BoundaryCode =
  | 'INVALID_ARGUMENT'
  | 'NOT_FOUND'
  | 'ALREADY_EXISTS'
  | 'FAILED_PRECONDITION'
  | 'OUT_OF_RANGE'
  | 'ABORTED'
  | 'RESOURCE_EXHAUSTED'
  | 'UNAVAILABLE'
  | 'DATA_LOSS'
  | 'PERMISSION_DENIED'
  | 'UNAUTHENTICATED';

/** The reason is stable and more exact than the code; the message is for people. */
export class BoundaryError extends TallymanError {
  override readonly name = 'BoundaryError';
  override readonly code: BoundaryCode;
  readonly reason: string;

  constructor(
    code: BoundaryCode,
    reason: string,
    message: string,
    options: { readonly cause?: unknown; readonly details?: Record<string, unknown> } = {},
  ) {
    super(code, message, { ...options, details: { ...options.details, reason } });
    this.code = code;
    this.reason = reason;
  }
}

/** A field that is not as it must be. */
export const invalid = (field: string, what: string): BoundaryError =>
  new BoundaryError('INVALID_ARGUMENT', 'invalid_field', `${field} ${what}`, { details: { field } });

export const heldBack = (behind: string): BoundaryError =>
  new BoundaryError(
    'ABORTED',
    'held_back',
    `fact "${behind}", which comes before it, cannot be taken now: send both again`,
  );
