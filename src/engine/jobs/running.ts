import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * A handler's own correlation id, or a context that synchronous handlers share. Never the job itself: anything that a
 * handler leaves open, such as a connection, would keep the job in memory.
 */
export const running = new AsyncLocalStorage<string | Turn>();

export interface Turn {
  correlationId: string | undefined;
}

/** The correlation id of the job whose handler is running, for jobs that it enqueues. */
export function runningCorrelation(): string | undefined {
  const store = running.getStore();
  return typeof store === 'object' ? store.correlationId : store;
}

/**
 * Runs engine work without the job's context. Claims and settles start where a handler ends: without this they, and the
 * jobs that an observer enqueues, would inherit the handler's trace and correlation id.
 */
export const runWithoutJobContext: <T>(work: () => T) => T = AsyncLocalStorage.snapshot();
