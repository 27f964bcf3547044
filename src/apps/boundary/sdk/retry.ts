import { backoffMs } from '../../../engine/resilience/backoff.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import { callError } from './call-error.ts';

export interface RetryOptions {
  /** After the first attempt. Default 3. */
  readonly retries?: number;
  /** The wait before the first retry; it doubles from there, and half of it is random. Default 100. */
  readonly baseMs?: number;
  /** Default 10,000. */
  readonly maxMs?: number;
}

/**
 * Repeats what did not get through. The work must be the same each time, message id and payload included: the node may have
 * done it already. An answer that says no is final.
 */
export async function withRetries<T>(
  work: () => Promise<T>,
  { retries = 3, baseMs = 100, maxMs = 10_000 }: RetryOptions = {},
  signal?: AbortSignal,
): Promise<T> {
  for (let failures = 0; ; failures += 1) {
    try {
      return await work();
    } catch (error) {
      const told = callError(error);
      if (!told.mayPass || failures >= retries || signal?.aborted) throw told;
      await pause(backoffMs(failures, { minMs: baseMs, maxMs }), signal);
      if (signal?.aborted) throw told;
    }
  }
}
