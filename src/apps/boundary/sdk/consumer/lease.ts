import { callError } from '../call-error.ts';

/** The node gives a consumer to another instance after 30 s of silence; a slow handler must not be silent that long. */
const renewMs = 10_000;

/** Keeps the consumer while a batch is handled, and tells when another instance has it. */
export class Lease {
  readonly #renew: () => Promise<void>;
  readonly #lost = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #renewal = Promise.resolve();
  /** When the node said last that this instance has it. */
  #provenAt = performance.now();

  /** Begins with a fetch that succeeded. */
  constructor(renew: () => Promise<void>) {
    this.#renew = renew;
    this.#timer = setInterval(() => void this.#ask(), renewMs);
  }

  /** Fires when another instance has the consumer, with that as its reason. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Rejects if another instance has the consumer. A process that was paused asks before it goes on. */
  async check(): Promise<void> {
    if (performance.now() - this.#provenAt > 2 * renewMs) await this.#ask();
    this.#lost.signal.throwIfAborted();
  }

  async end(): Promise<void> {
    clearInterval(this.#timer);
    await this.#renewal;
  }

  #ask(): Promise<void> {
    this.#renewal = this.#renewal.then(this.#renew).then(
      () => {
        this.#provenAt = performance.now();
      },
      (error: unknown) => {
        const told = callError(error);
        // A node that cannot be reached gives the consumer to nobody either.
        if (told.reason === 'consumer_in_use' || told.reason === 'consumer_taken_over')
          this.#lost.abort(told);
      },
    );
    return this.#renewal;
  }
}
