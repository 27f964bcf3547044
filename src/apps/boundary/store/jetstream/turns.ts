/**
 * Fairness between processes that append to one stream. Of batches made from the same head the server stores one. The process that
 * just won knows the new head and would win again, because the others have to read it first. If it heard other appenders in the
 * last 500 ms it waits about 15 ms. It hears them because every attempt publishes a head, which all processes subscribe to.
 */
import { pause } from '../../../../engine/resilience/deadline.ts';

/** An attempt of another process counts for this long. */
const contendedMs = 500;
/** Longer than it takes to read a head and to send a batch. */
const yieldMs = 15;

export class Turns {
  readonly #contendedAt = new Map<string, number>();
  readonly #appended = new Set<string>();

  /** Another process tries to append. */
  noteContender(key: string): void {
    this.#contendedAt.set(key, performance.now());
  }

  /** This process has appended. */
  noteAppended(key: string): void {
    this.#appended.add(key);
  }

  isContended(key: string): boolean {
    const at = this.#contendedAt.get(key);
    if (at === undefined) return false;
    if (performance.now() - at <= contendedMs) return true;
    this.#contendedAt.delete(key);
    return false;
  }

  /** To be called before a head is read and a batch is sent. */
  async next(key: string): Promise<void> {
    const hasJustAppended = this.#appended.delete(key);
    if (hasJustAppended && this.isContended(key)) await pause(yieldMs * (0.5 + Math.random()));
  }

  /** Between two attempts that failed: processes that lost together must not try together. */
  async again(failures: number): Promise<void> {
    await pause(Math.random() * Math.min(2 ** failures, 32));
  }
}
