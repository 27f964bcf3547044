/**
 * How fast a backlog drains. After days without a line everything that has gathered wants to cross at once; producers of the
 * zone go on meanwhile, and come first.
 */
import { setTimeout as sleep } from 'node:timers/promises';

export interface PaceOptions {
  /** Default: no limit. */
  readonly factsPerSecond?: number;
  /** Of records; objects are not counted. Default: no limit. */
  readonly bytesPerSecond?: number;
  /** Whether producers are appending right now: then the backlog steps back for a moment (`Intake.isBusy`). */
  readonly isBusy?: () => boolean;
  /** How long it steps back at most before each batch: a backlog must drain under load, too. Default 100. */
  readonly stepBackMs?: number;
  /** Milliseconds of a clock that only grows. */
  readonly clock?: () => number;
  readonly wait?: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** What a step has fetched. */
export interface PacedBatch {
  readonly entries: readonly { readonly text: string }[];
  /** Facts that wait, those of this batch included. */
  readonly backlog: number;
}

const everyMs = 5;
/** `FetchFacts` takes no more. */
const mostBytes = 1024 * 1024;

/** Only a backlog is slowed down: a batch with nothing behind it is what producers append now, and goes at once. */
export class Pace {
  readonly #factsPerSecond: number;
  readonly #bytesPerSecond: number;
  readonly #isBusy: () => boolean;
  readonly #stepBackMs: number;
  readonly #clock: () => number;
  readonly #wait: (ms: number, signal: AbortSignal) => Promise<void>;
  /** When what was taken so far is paid for. */
  #paidUntil = 0;

  constructor(options: PaceOptions = {}) {
    this.#factsPerSecond = options.factsPerSecond ?? Number.POSITIVE_INFINITY;
    this.#bytesPerSecond = options.bytesPerSecond ?? Number.POSITIVE_INFINITY;
    this.#isBusy = options.isBusy ?? (() => false);
    this.#stepBackMs = options.stepBackMs ?? 100;
    this.#clock = options.clock ?? (() => performance.now());
    this.#wait = options.wait ?? sleepUnlessAborted;
  }

  /** No more than a second's worth in one batch, so that a step never outlasts the lease of its consumer. */
  batch(facts: number): { readonly limit: number; readonly maxBytes: number } {
    return {
      limit: Math.max(1, Math.min(facts, Math.floor(this.#factsPerSecond))),
      maxBytes: Math.max(1, Math.min(mostBytes, Math.floor(this.#bytesPerSecond))),
    };
  }

  /** Waits until the batch may go. */
  async take({ entries, backlog }: PacedBatch, signal: AbortSignal): Promise<void> {
    if (backlog <= entries.length) return;
    for (let waited = 0; this.#isBusy() && waited < this.#stepBackMs && !signal.aborted; waited += everyMs)
      await this.#wait(everyMs, signal);
    const bytes = entries.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    const costMs = 1000 * Math.max(entries.length / this.#factsPerSecond, bytes / this.#bytesPerSecond);
    const now = this.#clock();
    const from = Math.max(now, this.#paidUntil);
    this.#paidUntil = from + costMs;
    if (from > now) await this.#wait(from - now, signal);
  }
}

async function sleepUnlessAborted(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => {});
}
