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
  readonly #share: Share<Item> | undefined;
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
    /** Without it a batch takes what came first. */
    readonly share?: Share<Item>;
  }) {
    this.#send = options.send;
    this.#maxBatch = options.maxBatch;
    this.#maxInFlight = options.maxInFlight;
    this.#share = options.share;
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
      const batch = this.#next();
      this.#inFlight += 1;
      void this.#deliver(batch);
    }
  }

  #next(): Waiting<Item, Answer>[] {
    if (this.#share) return this.#shared(this.#share);
    const waiting = this.#waiting;
    if (waiting.length > this.#maxBatch) return waiting.splice(0, this.#maxBatch);
    this.#waiting = [];
    return waiting;
  }

  /** What came first, but of each group only so many; the others keep their order. */
  #shared({ groupOf, most }: Share<Item>): Waiting<Item, Answer>[] {
    const taken = new Map<string, number>();
    const batch: Waiting<Item, Answer>[] = [];
    this.#waiting = this.#waiting.filter((each) => {
      const group = groupOf(each.item);
      const count = taken.get(group) ?? 0;
      if (batch.length >= this.#maxBatch || count >= most(group)) return true;
      taken.set(group, count + 1);
      batch.push(each);
      return false;
    });
    return batch;
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

/** Keeps one group from filling the batches that others wait for. */
interface Share<Item> {
  readonly groupOf: (item: Item) => string;
  /** Items of this group in one batch, as things are now: 1 or more. */
  readonly most: (group: string) => number;
}

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer | Promise<Answer>) => void;
  readonly reject: (error: unknown) => void;
}
