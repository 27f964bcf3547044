import type { Isolation } from './claim.ts';

/** The next suspect starts when the one before it has ended or has run for this long. */
const staggerMs = 100;
/** Suspects wait this long for an item that must run alone. */
const letAloneFirstMs = 1000;
/** The last look found nothing free: look again after this time. */
const lookAgainMs = 100;

/**
 * When to take an item of a crashed batch.
 *
 * After a crash it is not known which of the jobs killed the worker. They are claimed one at a time, so that the next crash
 * tells. There are two sorts:
 *
 *   suspect  was held by a worker that died. Suspects start one after another, 100 ms apart or when the one before
 *            has ended: a job that kills its worker at once is found, and slow ones do not wait for each other.
 *   alone    died with its worker once more. No other isolated item runs in this process meanwhile.
 *
 * Ordinary work goes on beside both. `tallyman.take_back` decides who is charged.
 */
export class CrashIsolation {
  readonly #running = new Map<string, Isolation>();
  readonly #waiting = { suspect: false, alone: false };
  #startedAt = Number.NEGATIVE_INFINITY;
  #aloneWaitsSince: number | undefined;
  #notBefore = 0;

  /** An ordinary claim tells whether items of either sort may be waiting. */
  found(waiting: Readonly<Record<Isolation, boolean>>, now: number): void {
    this.#waiting.suspect = waiting.suspect;
    this.#waiting.alone = waiting.alone;
    this.#aloneWaitsSince = waiting.alone ? (this.#aloneWaitsSince ?? now) : undefined;
  }

  /** Isolated work runs here, or may be waiting. */
  get isActive(): boolean {
    return this.#running.size > 0 || this.#waiting.suspect || this.#waiting.alone;
  }

  /** What to claim now, if anything. */
  next(now: number): Isolation | undefined {
    if (now < this.#notBefore) return undefined;
    if ([...this.#running.values()].includes('alone')) return undefined;
    if (this.#running.size === 0) {
      if (this.#waiting.alone) return 'alone';
    } else {
      const isForAlone = this.#aloneWaitsSince !== undefined && now - this.#aloneWaitsSince < letAloneFirstMs;
      if (isForAlone || now - this.#startedAt < staggerMs) return undefined;
    }
    return this.#waiting.suspect ? 'suspect' : undefined;
  }

  /** In how many milliseconds `next` may answer otherwise without anything having ended; undefined: not by itself. */
  lookAgainIn(now: number): number | undefined {
    if (!this.#waiting.suspect && !this.#waiting.alone) return undefined;
    const at = Math.max(this.#notBefore, this.#running.size > 0 ? this.#startedAt + staggerMs : 0);
    return Math.max(1, at - now);
  }

  claimed(token: string, isolation: Isolation, now: number): void {
    this.#running.set(token, isolation);
    this.#startedAt = now;
  }

  /** A claim found nothing: another worker holds it, or it was never there. */
  foundNothing(isolation: Isolation, now: number): void {
    this.#waiting[isolation] = false;
    this.#notBefore = now + lookAgainMs;
  }

  /** True if it was an isolated one. */
  ended(token: string): boolean {
    return this.#running.delete(token);
  }
}
