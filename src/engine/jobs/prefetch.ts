/**
 * How much a worker may hold: no more than it will start within about 200 ms. Fast jobs are claimed by the
 * thousand, slow ones are not hoarded, so that other workers find them.
 */
export class Prefetch {
  readonly #concurrency: number;
  readonly #max: number;
  #averageMs: number | undefined;

  constructor(concurrency: number, max: number) {
    this.#concurrency = concurrency;
    this.#max = Math.max(max, concurrency);
  }

  /** Records how long a handler took. */
  took(ms: number): void {
    this.#averageMs = this.#averageMs === undefined ? ms : this.#averageMs + (ms - this.#averageMs) * 0.05;
  }

  /** Jobs that one slot runs within the horizon. */
  get perSlot(): number {
    return this.#averageMs === undefined ? this.#max : Math.ceil(horizonMs / Math.max(this.#averageMs, 0.01));
  }

  /** How many jobs to hold, including running ones. Before any measurement: as many as can run at once. */
  get target(): number {
    if (this.#averageMs === undefined) return this.#concurrency;
    const startedSoon = (horizonMs / Math.max(this.#averageMs, 0.01)) * this.#concurrency;
    return Math.min(this.#max, this.#concurrency + Math.ceil(startedSoon));
  }
}

const horizonMs = 200;
