/** Numbers that look random and come again with the same seed. Worker programs use it, too: it needs no test runner. */
export interface Random {
  readonly seed: number;
  /** At least 0, below 1. */
  next(): number;
  /** At least `low`, below `high`. */
  between(low: number, high: number): number;
  whole(below: number): number;
  of<T>(items: readonly T[]): T;
  /** True with this probability. */
  chance(probability: number): boolean;
}

/** mulberry32 */
export function randomOf(seed: number): Random {
  let state = seed;
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const whole = (below: number): number => Math.floor(next() * below);
  return {
    seed,
    next,
    between: (low, high) => low + next() * (high - low),
    whole,
    of: <T>(items: readonly T[]) => items[whole(items.length)] as T,
    chance: (probability) => next() < probability,
  };
}
