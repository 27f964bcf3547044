import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * A handler's own correlation id, or a place that handlers which return at once take turns in. Never the job: what a handler
 * leaves behind, a connection say, would keep it alive.
 */
export const running = new AsyncLocalStorage<string | Turn>();

export interface Turn {
  correlationId: string | undefined;
}

/** The correlation id of the job whose handler is running, for what is enqueued from within it. */
export function runningCorrelation(): string | undefined {
  const store = running.getStore();
  return typeof store === 'object' ? store.correlationId : store;
}

/**
 * Claims and settles go on where a handler ends, and would inherit its trace and its correlation id, and so would what an
 * observer enqueues. What the engine does for all jobs runs in here.
 */
export const runWithoutJobContext: <T>(work: () => T) => T = AsyncLocalStorage.snapshot();
