/** The wait after failure n (0, 1, …) is `minMs * 2^n`, never above `maxMs`. */
export interface BackoffLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/** Without jitter: for a single caller, or if the caller adds its own. */
export function exponentialMs(failures: number, { minMs, maxMs }: BackoffLimits): number {
  return Math.min(maxMs, minMs * 2 ** Math.min(failures, 30));
}

/** Between half and all of the exponential wait: processes that lost the same service do not reconnect at the same time. */
export function backoffMs(failures: number, limits: BackoffLimits, random = Math.random): number {
  const full = exponentialMs(failures, limits);
  return full / 2 + (random() * full) / 2;
}

/** Adds up to a tenth to a chosen wait: never earlier, and not all at once. */
export const withJitter = (ms: number, random = Math.random): number => ms * (1 + random() * 0.1);
