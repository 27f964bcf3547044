/** What a call to a node ended with: the node's own code and reason, or that there was no answer. */
import { Code, ConnectError } from '@connectrpc/connect';
import { TallymanError } from '../../../engine/errors.ts';
import { BoundaryError } from '../domain/errors.ts';

export class BoundaryCallError extends TallymanError {
  override readonly name = 'BoundaryCallError';
  /** Stable, and more exact than the code: `conflicting_duplicate`. `no_answer`: the call did not get through. */
  readonly reason: string;
  /** The same call may succeed a moment later: the node cannot be reached, is too slow, stops, or is busy. */
  readonly mayPass: boolean;
  /** False: the call did not get through, or nobody knows whether it did. */
  readonly isAnswer: boolean;

  constructor(
    code: string,
    reason: string,
    message: string,
    options: { readonly mayPass: boolean; readonly isAnswer: boolean; readonly cause?: unknown },
  ) {
    super(code, message, { cause: options.cause, details: { reason } });
    this.reason = reason;
    this.mayPass = options.mayPass;
    this.isAnswer = options.isAnswer;
  }
}

/** Says something about the fact itself: sending it again as it is cannot succeed. */
const aboutTheFact = new Set([
  'INVALID_ARGUMENT',
  'ALREADY_EXISTS',
  'FAILED_PRECONDITION',
  'OUT_OF_RANGE',
  'NOT_FOUND',
]);

/** Everything else is about the node, the line or the caller, and says nothing against the fact. */
export const isAboutTheFact = (code: string): boolean => aboutTheFact.has(code);

/** `AlreadyExists` and `already_exists` → `ALREADY_EXISTS`. */
export const codeName = (code: string): string =>
  code.replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`).toUpperCase();

export function callError(error: unknown): BoundaryCallError {
  if (error instanceof BoundaryCallError) return error;
  if (error instanceof BoundaryError)
    return new BoundaryCallError(error.code, error.reason, error.message, {
      mayPass: false,
      isAnswer: true,
      cause: error,
    });
  // The file beside us, and not the node.
  if (error instanceof Error && 'code' in error && error.code === 'ERR_SQLITE_ERROR')
    return new BoundaryCallError('INTERNAL', 'file_failed', error.message, {
      mayPass: true,
      isAnswer: false,
      cause: error,
    });
  const told = ConnectError.from(error);
  const code = codeName(Code[told.code] ?? 'Unknown');
  return told.isWireError ? answered(told, code) : unanswered(told, code);
}

/** The node writes its reason before the message: `conflicting_duplicate: message id …`. */
function answered(error: ConnectError, code: string): BoundaryCallError {
  const [, reason = code.toLowerCase(), message = error.rawMessage] =
    /^([a-z][a-z0-9_]*): (.*)$/s.exec(error.rawMessage) ?? [];
  const mayPass =
    error.code === Code.Unavailable ||
    error.code === Code.DeadlineExceeded ||
    reason === 'stopping' ||
    reason === 'busy';
  return new BoundaryCallError(code, reason, message, { mayPass, isAnswer: true, cause: error });
}

function unanswered(error: ConnectError, code: string): BoundaryCallError {
  const bad = certificateProblem(error);
  if (bad !== undefined)
    return new BoundaryCallError(
      'UNAUTHENTICATED',
      'node_not_trusted',
      `the node's certificate, or ours, is not accepted: ${bad}`,
      { mayPass: false, isAnswer: false, cause: error },
    );
  // Something between here and the node answered, or the answer is none of this service.
  const isOther = error.rawMessage.startsWith('HTTP ') || error.rawMessage.startsWith('unsupported content');
  const mayPass = isOther
    ? error.code === Code.Unavailable || error.code === Code.DeadlineExceeded
    : error.code !== Code.ResourceExhausted;
  return new BoundaryCallError(code, 'no_answer', `the node gave no answer: ${error.rawMessage}`, {
    mayPass,
    isAnswer: false,
    cause: error,
  });
}

const certificateCodes =
  /^(CERT_|ERR_TLS|ERR_SSL|ERR_OSSL|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|HOSTNAME_MISMATCH)/;

function certificateProblem(error: unknown): string | undefined {
  const seen = new Set<unknown>();
  for (let each = error; each instanceof Error && !seen.has(each); each = each.cause) {
    seen.add(each);
    const code = 'code' in each && typeof each.code === 'string' ? each.code : '';
    if (certificateCodes.test(code)) return each.message;
  }
  return undefined;
}
