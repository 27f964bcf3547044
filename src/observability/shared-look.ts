import { endsWithin } from '../engine/resilience/deadline.ts';

export interface SharedLookOptions {
  /** How long an answer, or an error, is cached. */
  readonly cacheMs: number;
  /** The longest time that a caller waits; the query itself continues. */
  readonly patienceMs: number;
}

/**
 * A costly query, shared by all callers: one runs at a time, and its answer is cached for a while. A call never fails and
 * never takes long. If the query fails or is slow, callers get the last good answer.
 */
export class SharedLook<T> {
  readonly #look: () => Promise<T>;
  readonly #options: SharedLookOptions;
  #underWay: Promise<void> | undefined;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #last: T | undefined;
  #well = false;

  constructor(look: () => Promise<T>, options: SharedLookOptions) {
    this.#look = look;
    this.#options = options;
  }

  async answer(): Promise<{ readonly last: T | undefined; readonly well: boolean }> {
    if (!this.#underWay && performance.now() - this.#lookedAt >= this.#options.cacheMs)
      this.#underWay = this.#lookOnce();
    const inTime = this.#underWay ? await endsWithin(this.#underWay, this.#options.patienceMs) : true;
    return { last: this.#last, well: inTime && this.#well };
  }

  async #lookOnce(): Promise<void> {
    try {
      this.#last = await this.#look();
      this.#well = true;
    } catch {
      this.#well = false;
    } finally {
      this.#lookedAt = performance.now();
      this.#underWay = undefined;
    }
  }
}
