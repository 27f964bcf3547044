/**
 * Group commit: what arrives while a commit is under way shares the next one.
 *
 * An idle batcher sends at once, with no artificial delay; a busy one sends what has gathered as soon as a batch is
 * back. Each caller gets its own answer, after its batch is durable. Two batches in flight beat one by a third,
 * because one is being prepared while the other waits for the disk; where order matters, allow one.
 */
export class Batcher<Item, Answer> {
  readonly #send: (items: Item[]) => Promise<(Answer | Error | Promise<Answer>)[]>;
  readonly #maxBatch: number;
  readonly #maxInFlight: number;
  #waiting: Waiting<Item, Answer>[] = [];
  #inFlight = 0;
  #scheduled = false;
  #whenIdle: (() => void)[] = [];

  constructor(options: {
    /**
     * Returns a result for each item, in the order given; an Error goes to that caller only, a rejection to every caller. A
     * promise is for an item that the batch could not handle: its caller keeps waiting, the batch does not.
     */
    readonly send: (items: Item[]) => Promise<(Answer | Error | Promise<Answer>)[]>;
    readonly maxBatch: number;
    readonly maxInFlight: number;
  }) {
    this.#send = options.send;
    this.#maxBatch = options.maxBatch;
    this.#maxInFlight = options.maxInFlight;
  }

  add(item: Item): Promise<Answer> {
    return new Promise<Answer>((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#schedule();
    });
  }

  /** Resolves when everything that was added has its answer. */
  async idle(): Promise<void> {
    if (this.#waiting.length > 0 || this.#inFlight > 0)
      await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
  }

  /** Callers that run in the same turn of the event loop share the first batch, too: this comes behind all of them. */
  #schedule(): void {
    if (this.#scheduled || this.#inFlight >= this.#maxInFlight) return;
    this.#scheduled = true;
    process.nextTick(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    while (this.#waiting.length > 0 && this.#inFlight < this.#maxInFlight) {
      const batch =
        this.#waiting.length > this.#maxBatch ? this.#waiting.splice(0, this.#maxBatch) : this.#waiting;
      if (batch === this.#waiting) this.#waiting = [];
      this.#inFlight += 1;
      void this.#deliver(batch);
    }
  }

  async #deliver(batch: Waiting<Item, Answer>[]): Promise<void> {
    try {
      const answers = await this.#send(batch.map((waiting) => waiting.item));
      batch.forEach((waiting, i) => {
        const answer = answers[i] as Answer | Error | Promise<Answer>;
        if (answer instanceof Error) waiting.reject(answer);
        else waiting.resolve(answer);
      });
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
    } finally {
      this.#inFlight -= 1;
      if (this.#waiting.length > 0) this.#schedule();
      else if (this.#inFlight === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
    }
  }
}

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer | Promise<Answer>) => void;
  readonly reject: (error: unknown) => void;
}
