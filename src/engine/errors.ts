/**
 * Errors for the person who reads them: what happened, to which item, what to do.
 * Codes are stable; messages may change.
 */
export class TallymanError extends Error {
  override readonly name: string = 'TallymanError';
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    code: string,
    message: string,
    options: { cause?: unknown; details?: Record<string, unknown> } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details;
  }
}

export const closedError = (): TallymanError =>
  new TallymanError('CLOSED', 'This Tallyman was closed: open another one, or close it after its last use.');

/** What no retry can fix. A handler that throws it ends its job as FAILED at once. */
export class PermanentError extends TallymanError {
  override readonly name = 'PermanentError';
}

/**
 * Asks for another run after `delayMs`, as the handler wishes, not as the backoff says. It counts as an attempt, unless
 * the handler says that it has not tried (`isFree`): then make sure yourself that this does not go on forever.
 */
export class RetryLater extends TallymanError {
  override readonly name = 'RetryLater';
  readonly delayMs: number;
  readonly isFree: boolean;

  constructor(
    delayMs: number,
    message = `asked to be run again in ${delayMs} ms`,
    { isFree = false }: { readonly isFree?: boolean } = {},
  ) {
    super('RETRY_LATER', message);
    this.delayMs = delayMs;
    this.isFree = isFree;
  }
}

/** A handler that throws it makes its job a dead letter at once, whatever attempts are left. */
export class GiveUpError extends TallymanError {
  override readonly name = 'GiveUpError';
}

/** Another worker has the lease; whatever the handler did since is discarded. */
export class LeaseLostError extends TallymanError {
  override readonly name = 'LeaseLostError';

  constructor(message: string) {
    super('LEASE_LOST', message);
  }
}

/** Accepts anything that can be thrown; some things cannot even be read. */
export function messageOf(error: unknown): string {
  try {
    return error instanceof Error ? error.message : String(error);
  } catch {
    return 'something that cannot be read was thrown';
  }
}
