/** So many at once; the others wait in line, first come, first served. */
export class Semaphore {
  #free: number;
  readonly #line: (() => void)[] = [];

  constructor(slots: number) {
    this.#free = slots;
  }

  /** Runs `work` in a slot. A signal that fires while it waits takes it out of the line. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.#take(signal);
    try {
      return await work();
    } finally {
      this.#giveBack();
    }
  }

  async #take(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const leave = (): void => {
        this.#line.splice(this.#line.indexOf(turn), 1);
        reject(signal?.reason);
      };
      const turn = (): void => {
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      signal?.addEventListener('abort', leave, { once: true });
      this.#line.push(turn);
    });
  }

  /** The slot goes to the next in line directly, so that no latecomer can take it in between. */
  #giveBack(): void {
    const next = this.#line.shift();
    if (next) next();
    else this.#free += 1;
  }
}
