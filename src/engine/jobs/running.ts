import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * A handler's own correlation id, or a place that handlers which return at once take turns in. Never the job: what a handler
 * leaves behind, a connection say, would keep it alive.
 */
export const running = new AsyncLocalStorage<string | Turn>();

export interface Turn {
  correlationId: string | undefined;
}

/** The correlation id of the job whose handler is running, for whoever enqueues from within it. */
export function runningCorrelation(): string | undefined {
  const store = running.getStore();
  return typeof store === 'object' ? store.correlationId : store;
}

/**
 * What the engine does for all jobs is of none: handlers end, claims and settles go on from there, and so would their
 * traces, and the correlation id of whatever an observer enqueues.
 */
export const outside: <T>(work: () => T) => T = AsyncLocalStorage.snapshot();
