/** Above this many entries, full buckets are deleted; their callers start again with a full bucket. */
const most = 10_000;
/** So many are left where all are in use. Some at once: to look for them takes a walk through all of them. */
const kept = 9_000;

interface Bucket {
  tokens: number;
  at: number;
}

export interface RateLimitOptions {
  readonly now?: () => number;
  /** Other processes grant a part of it: `takeDemand` is called from time to time, and tells them. Default false. */
  readonly isShared?: boolean;
}

/** A token bucket for each key: `ratePerSecond` on average, `burst` at once; less where other processes grant a part of it. */
export class RateLimit {
  readonly #ratePerSecond: number;
  readonly #burst: number;
  readonly #now: () => number;
  readonly #buckets = new Map<string, Bucket>();
  /** The part of the limit that is ours to grant; 1 for keys that are not in it. */
  #shares: ReadonlyMap<string, number> = new Map();
  readonly #isShared: boolean;
  /** How often was asked since `takeDemand`, granted or not. Empty if not shared: nothing would delete its entries. */
  #demand = new Map<string, number>();

  constructor(
    ratePerSecond: number,
    burst: number,
    { now = () => performance.now(), isShared = false }: RateLimitOptions = {},
  ) {
    this.#isShared = isShared;
    this.#ratePerSecond = ratePerSecond;
    this.#burst = burst;
    this.#now = now;
  }

  get size(): number {
    return this.#buckets.size;
  }

  /** Seconds to wait, or 0 if the request may proceed. */
  take(key: string): number {
    const now = this.#now();
    const share = this.#shares.get(key) ?? 1;
    const bucket = this.#buckets.get(key) ?? { tokens: this.#burst, at: now };
    const tokens = this.#refilled(bucket, now, share);
    if (!this.#buckets.has(key) && this.#buckets.size >= most) this.#forgetFull(now);
    this.#buckets.set(key, { tokens: tokens >= 1 ? tokens - 1 : tokens, at: now });
    if (this.#isShared) this.#demand.set(key, (this.#demand.get(key) ?? 0) + 1);
    return tokens >= 1 ? 0 : Math.max(1, Math.ceil((1 - tokens) / (this.#ratePerSecond * share)));
  }

  takeDemand(): ReadonlyMap<string, number> {
    const demand = this.#demand;
    this.#demand = new Map();
    return demand;
  }

  setShares(shares: ReadonlyMap<string, number>): void {
    this.#shares = shares;
  }

  #refilled(bucket: Bucket, now: number, share: number): number {
    const refilled = bucket.tokens + ((now - bucket.at) / 1000) * this.#ratePerSecond * share;
    return Math.min(Math.max(1, this.#burst * share), refilled);
  }

  #forgetFull(now: number): void {
    for (const [key, bucket] of this.#buckets)
      if (this.#refilled(bucket, now, 1) >= this.#burst) this.#buckets.delete(key);
    // Most of them are in use: delete the oldest, because memory is bounded.
    for (const key of this.#buckets.keys()) {
      if (this.#buckets.size <= kept) return;
      this.#buckets.delete(key);
    }
  }
}
