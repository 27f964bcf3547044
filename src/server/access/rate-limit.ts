/** Above this many entries, full buckets are deleted; their callers start again with a full bucket. */
const most = 10_000;

/** A token bucket for each key: `ratePerSecond` on average, `burst` at once. */
export class RateLimit {
  readonly #ratePerSecond: number;
  readonly #burst: number;
  readonly #now: () => number;
  readonly #buckets = new Map<string, { tokens: number; at: number }>();

  constructor(ratePerSecond: number, burst: number, now: () => number = () => performance.now()) {
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
    const bucket = this.#buckets.get(key) ?? { tokens: this.#burst, at: now };
    const tokens = this.#refilled(bucket, now);
    if (!this.#buckets.has(key) && this.#buckets.size >= most) this.#forgetFull(now);
    this.#buckets.set(key, { tokens: tokens >= 1 ? tokens - 1 : tokens, at: now });
    return tokens >= 1 ? 0 : Math.max(1, Math.ceil((1 - tokens) / this.#ratePerSecond));
  }

  #refilled(bucket: { tokens: number; at: number }, now: number): number {
    return Math.min(this.#burst, bucket.tokens + ((now - bucket.at) / 1000) * this.#ratePerSecond);
  }

  #forgetFull(now: number): void {
    for (const [key, bucket] of this.#buckets)
      if (this.#refilled(bucket, now) >= this.#burst) this.#buckets.delete(key);
    // All of them are in use: delete the oldest, because memory is bounded.
    const [oldest] = this.#buckets.keys();
    if (this.#buckets.size >= most && oldest !== undefined) this.#buckets.delete(oldest);
  }
}
