import { isConnectionError } from '../../engine/database/database.ts';
import { type ExaminedBatch, merged } from './examined-batch.ts';
import type { ReadResult } from './tag-read.ts';

interface Call {
  readonly batch: ExaminedBatch;
  readonly resolve: (results: ReadResult[]) => void;
  readonly reject: (error: unknown) => void;
}

/** More reads in one transaction gain nothing, and lock the baskets against other processes for longer. */
const mostReads = 2000;

/**
 * Group commit, measured in reads: calls that arrive during a transaction share the next one, as far as they fit. A call is
 * never split. One transaction at a time: two would wait for each other's baskets, and reads are decided in the order in
 * which they came. If the database rejects a shared transaction, each call gets its own, so one bad call fails alone.
 */
export class SharedCommits {
  readonly #commit: (batch: ExaminedBatch) => Promise<ReadResult[]>;
  #waiting: Call[] = [];
  #isBusy = false;
  #isScheduled = false;

  constructor(commit: (batch: ExaminedBatch) => Promise<ReadResult[]>) {
    this.#commit = commit;
  }

  add(batch: ExaminedBatch): Promise<ReadResult[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ batch, resolve, reject });
      this.#schedule();
    });
  }

  /** Calls of the same turn of the event loop share the first transaction, too. */
  #schedule(): void {
    if (this.#isScheduled || this.#isBusy) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#start();
    });
  }

  #start(): void {
    if (this.#isBusy || this.#waiting.length === 0) return;
    this.#isBusy = true;
    void this.#send(this.#next());
  }

  #next(): Call[] {
    let reads = 0;
    const end = this.#waiting.findIndex(({ batch }, i) => {
      reads += batch.places.length;
      return i > 0 && reads > mostReads;
    });
    return this.#waiting.splice(0, end < 0 ? this.#waiting.length : end);
  }

  async #send(calls: readonly Call[]): Promise<void> {
    const answers = await this.#answersTo(calls);
    this.#isBusy = false;
    this.#start();
    // One per turn: what callers do with their answers must not delay the next transaction.
    for (const answer of answers) {
      answer();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async #answersTo(calls: readonly Call[]): Promise<(() => void)[]> {
    try {
      const results = await this.#commit(merged(calls.map(({ batch }) => batch)));
      let end = 0;
      return calls.map(({ batch, resolve }) => {
        end += batch.places.length;
        const own = results.slice(end - batch.places.length, end);
        return () => resolve(own);
      });
    } catch (error) {
      if (calls.length === 1 || isConnectionError(error))
        return calls.map(
          ({ reject }) =>
            () =>
              reject(error),
        );
      const apart: (() => void)[] = [];
      for (const call of calls) apart.push(...(await this.#answersTo([call])));
      return apart;
    }
  }
}
