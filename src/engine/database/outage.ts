import { messageOf } from '../errors.ts';
import type { BackoffLimits } from '../resilience/backoff.ts';

/** The driver's errors that say that the connection is gone, without the reason and without a code. */
const lostConnection =
  /Connection terminated|Client has encountered a connection error|Client was closed|timeout expired/;

/** Waits between attempts of a statement that must succeed: short at first, because most outages are a fail-over. */
export const statementRetry: BackoffLimits = { minMs: 20, maxMs: 2_000 };

/** An answer did not come in time, so the connection is given up. The outcome of its statement is unknown. */
export class ConnectionTimeoutError extends Error {
  override readonly name = 'ConnectionTimeoutError';
  readonly code = 'ETIMEDOUT';
}

/** True for errors that say nothing about the statement: the connection is lost, or the server is shutting down or starting. */
export function isConnectionError(error: unknown): boolean {
  const code = codeOf(error);
  return (
    /^(ECONN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN)/.test(code) ||
    /^(08|57P0)/.test(code) ||
    code === '53300' ||
    lostConnection.test(messageOf(error)) ||
    /timeout exceeded when trying to connect/.test(messageOf(error))
  );
}

/** Caused by the caller: it left its transaction idle for too long (25P03), or its statement ran into a limit (57014). */
const notOutages: ReadonlySet<string> = new Set(['25P03', '57014']);

/**
 * True when the error, or one that caused it, says that the database could not be used: the connection was lost or
 * refused, the server is shutting down, full, or read-only after a fail-over. It says nothing about whose database
 * that is; see `Database.isOwnOutage`.
 */
export function isOutage(error: unknown): boolean {
  const chain = causesOf(error);
  if (chain.some((each) => notOutages.has(codeOf(each)))) return false;
  return chain.some((each) => isConnectionError(each) || codeOf(each) === '25006');
}

/** Trouble that passes, and says nothing about the statement: a deadlock, a lock, a full disk, an I/O error, an outage. */
export function isPassing(error: unknown): boolean {
  return isOutage(error) || /^(40|53|55|57|58)/.test(codeOf(error));
}

/** How long an outage explains connection errors from elsewhere, such as a handler's own pool. */
const outageLastsMs = 10_000;

/** The outages of one database, so that they can be told from those of anything else a handler talks to. */
export class Outages {
  readonly #errors = new WeakSet<object>();
  #lastAt = Number.NEGATIVE_INFINITY;

  /** Notes an error of our own connections, if it is an outage, and returns it. */
  remember<E>(error: E): E {
    if (!isOutage(error)) return error;
    this.#errors.add(error as object);
    this.#lastAt = performance.now();
    return error;
  }

  get isRecent(): boolean {
    return performance.now() - this.#lastAt < outageLastsMs;
  }

  isOwn(error: unknown): boolean {
    try {
      if (!isOutage(error)) return false;
      if (this.isRecent) return true;
      return causesOf(error).some((each) => this.#errors.has(each as object));
    } catch {
      // A handler may throw a value that cannot be inspected.
      return false;
    }
  }
}

/** The error, what caused it, and the members of an AggregateError; each once, so that a cycle ends. */
function causesOf(error: unknown): unknown[] {
  const found = new Set<unknown>();
  const visit = (each: unknown): void => {
    if (each === null || typeof each !== 'object' || found.has(each)) return;
    found.add(each);
    if (each instanceof AggregateError) for (const member of each.errors) visit(member);
    visit((each as { cause?: unknown }).cause);
  };
  visit(error);
  return found.size > 0 ? [...found] : [error];
}

/** The connection is gone and the error does not say why: the server may have said so before. */
export function isVague(error: unknown): boolean {
  return codeOf(error) === '' && lostConnection.test(messageOf(error));
}

export function codeOf(error: unknown): string {
  const code = (error as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' ? code : '';
}
