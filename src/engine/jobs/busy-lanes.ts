import type { NewJob } from './new-job.ts';

/** Each that waits takes a connection of the pool. */
const maxWaiting = 2;
const maxBatch = 1000;

/**
 * Jobs of lanes (or with keys) that another open transaction has locked, alone or as part of what else is written with
 * them. They wait here instead of in a batch with others, a statement for each lane, at most two at once: free jobs and
 * other lanes go on.
 *
 * What is enqueued into a lane while others of this process wait for it goes behind them, so that calls made one after
 * another stay in order.
 */
export class BusyLanes<Item, Answer> {
  /** Writes items of one lane. Waits for it for a while, then fails with 55P03. */
  readonly #write: (items: Item[]) => Promise<readonly (Answer | Promise<Answer>)[]>;
  readonly #nameOf: (item: Item) => string;
  readonly #lanes = new Map<string, Waiting<Item, Answer>[]>();
  /** In the order of their turn. */
  readonly #line: string[] = [];
  #writing = 0;

  /** `nameOf`: the lane, or the key, that an item waits for. */
  constructor(
    write: (items: Item[]) => Promise<readonly (Answer | Promise<Answer>)[]>,
    nameOf: (item: Item) => string,
  ) {
    this.#write = write;
    this.#nameOf = nameOf;
  }

  /** The item's answer if others wait for its lane; undefined: it is not known to be busy. */
  follow(item: Item): Promise<Answer> | undefined {
    return this.#lanes.size > 0 && this.#lanes.has(this.#nameOf(item)) ? this.wait(item) : undefined;
  }

  wait(item: Item): Promise<Answer> {
    const name = this.#nameOf(item);
    return new Promise((resolve, reject) => {
      const waiting = this.#lanes.get(name);
      if (waiting) {
        waiting.push({ item, resolve, reject });
        return;
      }
      this.#lanes.set(name, [{ item, resolve, reject }]);
      this.#line.push(name);
      this.#next();
    });
  }

  #next(): void {
    while (this.#writing < maxWaiting && this.#line.length > 0) {
      this.#writing += 1;
      void this.#drain(this.#line.shift() as string);
    }
  }

  /** Until nothing waits for the lane any more. One that stays locked goes to the end of the line. */
  async #drain(name: string): Promise<void> {
    const waiting = this.#lanes.get(name) ?? [];
    while (waiting.length > 0) {
      const batch = waiting.splice(0, maxBatch);
      try {
        const answers = await this.#write(batch.map(({ item }) => item));
        batch.forEach(({ resolve }, i) => {
          resolve(answers[i] as Answer | Promise<Answer>);
        });
      } catch (error) {
        if ((error as { code?: string }).code === '55P03') {
          waiting.unshift(...batch);
          break;
        }
        for (const { reject } of batch) reject(error);
      }
    }
    if (waiting.length > 0) this.#line.push(name);
    else this.#lanes.delete(name);
    this.#writing -= 1;
    this.#next();
  }
}

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer | Promise<Answer>) => void;
  readonly reject: (error: unknown) => void;
}

/** What a job may have to wait for. */
export const lockOf = ({ queue, row }: NewJob): string =>
  JSON.stringify(row.l === undefined ? [row.t, row.k, row.x] : [row.t, queue, row.l, 'lane']);
