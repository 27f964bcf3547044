/**
 * Fairness between processes that append to one stream. Of batches that were made from the same head one is stored. The
 * process that has won knows the new head and could send at once, and would always be first; the others have to read it.
 * Every attempt is heard by all, since a head is published as any other message; so a process that has won and hears that
 * others try lets them go first, for a moment.
 */
import { pause } from '../../../../engine/resilience/deadline.ts';

/** As long as others are heard. */
const contendedMs = 500;
/** Longer than it takes to read a head and to send a batch. */
const yieldMs = 15;

export class Turns {
  readonly #heardAt = new Map<string, number>();
  readonly #hadTurn = new Set<string>();

  /** Another process tries to append. */
  heard(key: string): void {
    this.#heardAt.set(key, performance.now());
  }

  /** This process has appended. */
  won(key: string): void {
    this.#hadTurn.add(key);
  }

  isContended(key: string): boolean {
    const at = this.#heardAt.get(key);
    if (at === undefined) return false;
    if (performance.now() - at <= contendedMs) return true;
    this.#heardAt.delete(key);
    return false;
  }

  /** To be called before a head is read and a batch is sent. */
  async next(key: string): Promise<void> {
    const had = this.#hadTurn.delete(key);
    if (had && this.isContended(key)) await pause(yieldMs * (0.5 + Math.random()));
  }

  /** Between two attempts that failed: processes that lost together must not try together. */
  async again(failures: number): Promise<void> {
    await pause(Math.random() * Math.min(2 ** failures, 32));
  }
}
