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

/** When an enqueue was asked for, and when the system said that it was durable. */
export interface Enqueue {
  readonly begun: number;
  readonly acknowledged: number;
}

/**
 * Watches one lane that several writers fill at once. Which of two overlapping enqueues comes first is the system's
 * choice; but a job that was durable before another was even asked for has to run before it.
 */
export class HotLane {
  readonly #now: () => number;
  readonly #order: number[] = [];
  readonly #endedAt: number[] = [];
  #running = 0;
  #overlap = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  get ran(): number {
    return this.#endedAt.length;
  }

  start({ index }: Payload): void {
    if (this.#running > 0) this.#overlap += 1;
    this.#running += 1;
    this.#order.push(index);
  }

  end(): void {
    this.#running -= 1;
    this.#endedAt.push(this.#now());
  }

  ranBetween(from: number, to: number): number {
    return this.#endedAt.filter((at) => at >= from && at <= to).length;
  }

  /** Throws unless what ran, ran once, alone and in order, and all the rest is `waiting` in the store. */
  verify(enqueues: readonly Enqueue[], waiting: number): void {
    let disorder = 0;
    let foreign = 0;
    let latestBegun = Number.NEGATIVE_INFINITY;
    for (const index of this.#order) {
      const enqueue = enqueues[index];
      if (enqueue === undefined) {
        foreign += 1;
        continue;
      }
      if (enqueue.acknowledged < latestBegun) disorder += 1;
      latestBegun = Math.max(latestBegun, enqueue.begun);
    }
    const repeated = this.#order.length - new Set(this.#order).size;
    const lost = enqueues.length - new Set(this.#order).size - waiting;
    if (disorder + foreign + repeated + this.#overlap + Math.abs(lost) === 0) return;
    throw new BrokenPromise(
      `of ${enqueues.length} jobs in one lane ${this.#order.length} ran and ${waiting} wait: ${disorder} ran after ` +
        `a later one, ${this.#overlap} while another was running, ${repeated} more than once, ` +
        `${foreign} that must not, and ${lost} are missing.`,
    );
  }
}
