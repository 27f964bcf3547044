import { closedError } from '../errors.ts';

/**
 * The calls that have no answer yet, so that a close can wait for them.
 *
 *   open ── close() ──▶ closing ── the last call ends ──▶ closed      from `closing` on, calls are refused with CLOSED
 */
export class Calls {
  #count = 0;
  #isClosing = false;
  #onIdle: (() => void) | undefined;

  get isClosing(): boolean {
    return this.#isClosing;
  }

  requireOpen(): void {
    if (this.#isClosing) throw closedError();
  }

  begin(): void {
    this.requireOpen();
    this.#count += 1;
  }

  end(): void {
    this.#count -= 1;
    if (this.#count === 0) this.#onIdle?.();
  }

  /** Runs `work` as one call. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.begin();
    try {
      return await work();
    } finally {
      this.end();
    }
  }

  /** Resolves when the last call has ended. */
  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.#count > 0)
      await new Promise<void>((idle) => {
        this.#onIdle = idle;
      });
  }
}
