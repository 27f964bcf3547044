import { withJitter } from '../../../engine/jobs/failures.ts';
import { defaultBackoff } from '../../../engine/jobs/kind.ts';

const longestMs = 24 * 3_600_000;
const shortestMs = 1000;

/** `Retry-After` in milliseconds: seconds or an HTTP date, at least a second, at most a day. Undefined: no such wish. */
export function retryAfterMs(header: unknown, now: Date): number | undefined {
  if (typeof header !== 'string') return undefined;
  const text = header.trim();
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now.getTime();
  return Number.isNaN(ms) ? undefined : Math.min(longestMs, Math.max(shortestMs, ms));
}

/** How long to wait after attempt `attempt` (1, 2, …) failed, as the endpoint's schedule says. */
export function scheduledDelayMs(attempt: number, delays: readonly number[] | null): number {
  const seconds = delays?.[Math.min(attempt, delays.length) - 1];
  return withJitter(seconds === undefined ? defaultBackoff(attempt) : seconds * 1000);
}
