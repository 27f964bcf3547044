import type pg from 'pg';

/** Wait between two attempts to open it. */
const retryMs = 1000;

/**
 * One connection beside the pool, for the statements of the hot paths: to take one from the pool and to return it
 * costs a tenth of a millisecond on an idle system. It runs one statement at a time; when it is taken or lost, use the
 * pool. docs/decisions/0012-hot-connection.md
 */
export class HotConnection {
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

  /** Undefined: it is in use or lost. Otherwise the caller must give it back. */
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

  /** Waits for the statement that runs. */
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
        const forget = (): void => {
          if (this.#client === client) this.#client = undefined;
        };
        // The error comes first, and nothing may be sent after it.
        client.once('error', forget);
        client.once('end', forget);
      })
      // Users of the pool get the error there.
      .catch(() => {})
      .finally(() => {
        this.#opening = undefined;
      });
  }
}
