import { endsWithin } from '../engine/resilience/deadline.ts';

export interface SharedLookOptions {
  /** An answer, good or bad, is good for so long. */
  readonly cacheMs: number;
  /** Whoever asks waits no longer than this; the look itself goes on. */
  readonly patienceMs: number;
}

/**
 * A look at something costly, shared by all who ask: one is under way at a time, and its answer is kept for a while.
 * Asking never fails and never takes long. When the look fails or is slow, the last good answer is what there is.
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
