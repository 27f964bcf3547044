import type pg from 'pg';

/** Between two tries to open it. */
const retryMs = 1000;

/**
 * A connection beside the pool, for statements that somebody waits for: to fetch one from the pool and to bring it back
 * takes a tenth of a millisecond on an idle system. It runs one statement at a time; whoever finds it taken, or away, asks
 * the pool. docs/decisions/0012-statements-at-hand.md
 */
export class Spare {
  readonly #open: () => Promise<pg.Client>;
  #client: pg.Client | undefined;
  #isTaken = false;
  #isClosed = false;
  #opening: Promise<void> | undefined;
  #notBefore = 0;
  #whenGivenBack: () => void = () => {};

  constructor(open: () => Promise<pg.Client>) {
    this.#open = open;
    this.#reopen();
  }

  get isFree(): boolean {
    return this.#client !== undefined && !this.#isTaken && !this.#isClosed;
  }

  /** Undefined: not at hand. Otherwise to be given back. */
  take(): pg.Client | undefined {
    if (this.#isTaken || this.#isClosed) return undefined;
    if (!this.#client) {
      this.#reopen();
      return undefined;
    }
    this.#isTaken = true;
    return this.#client;
  }

  giveBack({ isBroken }: { readonly isBroken: boolean }): void {
    this.#isTaken = false;
    if (isBroken) this.#drop();
    this.#whenGivenBack();
  }

  /** After what is under way. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#opening;
    if (this.#isTaken)
      await new Promise<void>((resolve) => {
        this.#whenGivenBack = resolve;
      });
    await this.#client?.end();
  }

  #drop(): void {
    this.#client?.end().catch(() => {});
    this.#client = undefined;
  }

  #reopen(): void {
    if (this.#opening || performance.now() < this.#notBefore) return;
    this.#notBefore = performance.now() + retryMs;
    this.#opening = this.#open()
      .then((client) => {
        this.#client = client;
        client.once('end', () => {
          if (this.#client === client) this.#client = undefined;
        });
      })
      // The pool will tell what is wrong, to those who ask it.
      .catch(() => {})
      .finally(() => {
        this.#opening = undefined;
      });
  }
}
