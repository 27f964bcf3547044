/** The wait after failure n (0, 1, …) is `minMs * 2^n`, never above `maxMs`. */
export interface BackoffLimits {
  readonly minMs: number;
  readonly maxMs: number;
}

/** Without jitter: for what only one party does, or where the caller adds its own. */
export function exponentialMs(failures: number, { minMs, maxMs }: BackoffLimits): number {
  return Math.min(maxMs, minMs * 2 ** Math.min(failures, 30));
}

/** Between half and all of the exponential wait: processes that lost the same service do not come back in step. */
export function backoffMs(failures: number, limits: BackoffLimits, random = Math.random): number {
  const full = exponentialMs(failures, limits);
  return full / 2 + (random() * full) / 2;
}

/** Up to a tenth on top of a wait that somebody chose: never earlier, and not all at once. */
export const withJitter = (ms: number, random = Math.random): number => ms * (1 + random() * 0.1);
