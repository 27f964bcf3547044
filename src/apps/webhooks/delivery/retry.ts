import { defaultBackoff } from '../../../engine/jobs/kind.ts';
import { withJitter } from '../../../engine/resilience/backoff.ts';

/** A receiver may ask for a wait of a second to a day. */
export const retryAfterLimits = { minMs: 1000, maxMs: 24 * 3_600_000 };

/** How long to wait after attempt `attempt` (1, 2, …) failed, as the endpoint's schedule says. */
export function scheduledDelayMs(attempt: number, delays: readonly number[] | null): number {
  const seconds = delays?.[Math.min(attempt, delays.length) - 1];
  return withJitter(seconds === undefined ? defaultBackoff(attempt) : seconds * 1000);
}
