import { isConnectionError } from '../../engine/database/database.ts';
import { type ExaminedBatch, merged } from './examined-batch.ts';
import type { ReadResult } from './tag-read.ts';

interface Call {
  readonly batch: ExaminedBatch;
  readonly resolve: (results: ReadResult[]) => void;
  readonly reject: (error: unknown) => void;
}

/** More reads in one transaction gain nothing, and keep others from the baskets for longer. */
const mostReads = 2000;
/** One is examined and decided while the other is at the database. */
const mostCommits = 1;

/**
 * Group commit, measured in reads: calls that come while two transactions are under way share the next, as far as they
 * fit; a call is never split. If the database refuses what was shared, each call gets its own: nobody pays for
 * another's reads.
 */
export class SharedCommits {
  readonly #commit: (batch: ExaminedBatch) => Promise<ReadResult[]>;
  #waiting: Call[] = [];
  #underWay = 0;
  #scheduled = false;

  constructor(commit: (batch: ExaminedBatch) => Promise<ReadResult[]>) {
    this.#commit = commit;
  }

  add(batch: ExaminedBatch): Promise<ReadResult[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ batch, resolve, reject });
      this.#schedule();
    });
  }

  /** Calls of the same turn of the event loop share the first one, too. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      while (this.#waiting.length > 0 && this.#underWay < mostCommits) void this.#send(this.#next());
    });
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
    this.#underWay += 1;
    try {
      const results = await this.#commit(merged(calls.map(({ batch }) => batch)));
      let end = 0;
      for (const { batch, resolve } of calls) {
        end += batch.places.length;
        resolve(results.slice(end - batch.places.length, end));
      }
    } catch (error) {
      if (calls.length === 1 || isConnectionError(error)) for (const { reject } of calls) reject(error);
      else for (const { batch, resolve, reject } of calls) await this.#commit(batch).then(resolve, reject);
    } finally {
      this.#underWay -= 1;
      if (this.#waiting.length > 0) this.#schedule();
    }
  }
}
