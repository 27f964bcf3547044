import type { Handler, Payload } from './system.ts';

/** A system broke a promise during a run: its figure is worth nothing. */
export class BrokenPromise extends Error {}

/** Marks each job as it runs; at the end tells whether every one ran once and none besides. */
export class Tally {
  readonly expected: number;
  readonly #ran: Uint8Array;
  #count = 0;
  #foreign = 0;
  #complete: () => void = () => {};
  /** Settles when as many jobs ran as were expected. */
  readonly complete: Promise<void>;

  constructor(expected: number) {
    this.expected = expected;
    this.#ran = new Uint8Array(expected);
    this.complete = new Promise((resolve) => {
      this.#complete = resolve;
    });
  }

  get count(): number {
    return this.#count;
  }

  /** An arrow function, so that it can be handed over as the no-op handler itself. */
  readonly mark = (payload: Payload): void => {
    const { index } = payload;
    if (Number.isInteger(index) && index >= 0 && index < this.expected) {
      this.#ran[index] = Math.min((this.#ran[index] ?? 0) + 1, 255);
    } else {
      this.#foreign += 1;
    }
    this.#count += 1;
    if (this.#count === this.expected) this.#complete();
  };

  /** Throws unless each job ran exactly once. */
  verify(): void {
    let missing = 0;
    let repeated = 0;
    for (const times of this.#ran) {
      if (times === 0) missing += 1;
      else if (times > 1) repeated += 1;
    }
    if (missing + repeated + this.#foreign === 0) return;
    throw new BrokenPromise(
      `of ${this.expected} jobs ${missing} did not run, ${repeated} ran more than once, ` +
        `and ${this.#foreign} ran that must not.`,
    );
  }
}

/**
 * A handler that checks the order: within a lane, jobs have to come by growing index, each after the one
 * before has finished. It gives up the thread once, so that two jobs of one lane started together meet.
 */
export function orderChecking(tally: Tally): { readonly handler: Handler; verify(): void } {
  const last = new Map<string, number>();
  const busy = new Set<string>();
  let disorder = 0;
  let overlap = 0;
  return {
    async handler(payload) {
      const lane = payload.lane ?? '';
      if (busy.has(lane)) overlap += 1;
      if ((last.get(lane) ?? -1) >= payload.index) disorder += 1;
      busy.add(lane);
      last.set(lane, payload.index);
      await null;
      busy.delete(lane);
      tally.mark(payload);
    },
    verify() {
      if (disorder + overlap === 0) return;
      throw new BrokenPromise(
        `the order within lanes was broken: ${disorder} jobs ran after a later one, ` +
          `${overlap} while another of their lane was running.`,
      );
    },
  };
}
