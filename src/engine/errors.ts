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

/** What no retry can mend. A handler that throws it ends its job as FAILED at once. */
export class PermanentError extends TallymanError {
  override readonly name = 'PermanentError';
}

/** Asks for another run after `delayMs`, as the handler wishes, not as the backoff says. It counts as an attempt. */
export class RetryLater extends TallymanError {
  override readonly name = 'RetryLater';
  readonly delayMs: number;

  constructor(delayMs: number, message = `asked to be run again in ${delayMs} ms`) {
    super('RETRY_LATER', message);
    this.delayMs = delayMs;
  }
}

/** The lease went to somebody else; whatever the handler did since is discarded. */
export class LeaseLostError extends TallymanError {
  override readonly name = 'LeaseLostError';

  constructor(message: string) {
    super('LEASE_LOST', message);
  }
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
