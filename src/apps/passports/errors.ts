import { PermanentError, TallymanError } from '../../engine/errors.ts';
import { CompileError } from './compile/errors.ts';

/** BPC-13, permanent: the same job fails the same way however often it runs. HTTP statuses for routes. */
export const passportErrors = {
  SNAPSHOT_NOT_READY: 409,
  SNAPSHOT_SEALED: 409,
  RULE_PKG_NOT_PUBLISHED: 409,
  RULE_TESTS_FAILED: 409,
  VALIDATION_ERROR: 400,
  CANONICAL_JSON_INVALID: 400,
  FACT_MISSING: 422,
  DUPLICATE_FACT: 409,
  RULE_TYPE_ERROR: 422,
  RULE_PARSE_ERROR: 422,
  RULE_CYCLE_DETECTED: 422,
  UNIT_MISMATCH: 422,
  DIVISION_BY_ZERO: 422,
  PAYLOAD_TOO_LARGE: 413,
  PROOF_TOO_LARGE: 413,
  RECEIPT_TOO_LARGE: 413,
  SIGNING_KEY_MISSING: 503,
  SIGNATURE_INVALID: 500,
  BUILD_MISMATCH: 409,
  REPLAY_MISMATCH: 409,
  EVENT_VERSION_CONFLICT: 409,
  PASSPORT_NOT_ACTIVE: 410,
  PASSPORT_CEASED: 409,
  VERSION_NOT_SIGNED: 409,
  VERSION_ENDED: 409,
  EXPORT_NOT_READY: 409,
  CONFLICT: 409,
} as const;

export type PassportErrorCode = keyof typeof passportErrors;

export const passportError = (
  code: PassportErrorCode,
  message: string,
  details?: Record<string, unknown>,
): PermanentError => new PermanentError(code, message, details === undefined ? {} : { details });

export const notFound = (what: string, id: string): TallymanError =>
  new TallymanError('NOT_FOUND', `there is no ${what} ${id}`);

/** For `.catch`: an error of a statement with the code of BPC-13. */
export const rethrow = (error: unknown): never => {
  throw asPassportError(error);
};

/** Raised by functions/guards.sql: the code of BPC-13 is its detail. */
const guardState = 'BPC01';

/**
 * What a handler throws, as the engine takes it: errors of the compiler and of the guards in the database are permanent, two
 * writers at one audit chain are retried; everything else stays what it is.
 */
export function asPassportError(error: unknown): unknown {
  if (error instanceof CompileError) return passportError(error.code, error.message, { ...error.details });
  const { code, detail, message, constraint } = error as {
    readonly code?: string;
    readonly detail?: string;
    readonly message?: string;
    readonly constraint?: string;
  };
  if (code === guardState && detail !== undefined && detail in passportErrors)
    return passportError(detail as PassportErrorCode, (message ?? '').replace(`${detail}: `, ''));
  if (code === '23505' && (constraint === 'audit_events_pkey' || constraint === 'item_events_pkey'))
    return new TallymanError(
      'EVENT_VERSION_CONFLICT',
      'another transaction wrote the next event of the same aggregate first; try again',
      { cause: error },
    );
  if (code === '23505' && constraint === 'products_tenant_id_gtin_key')
    return passportError('CONFLICT', 'another product has this GTIN already: each model has its own');
  return error;
}
