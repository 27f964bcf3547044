/**
 * When to take an item of a crashed batch. It must run alone in this process, so that if the process dies again it
 * is known whom to blame. A quiet worker takes it at once; a busy one stops claiming for a while to become quiet,
 * then goes on with ordinary work for a longer while. After long waiting it is taken beside others: no attempt is
 * counted if that crashes, but a process that starts again is quiet, and takes it alone.
 */
export class Patience {
  #wantedSince: number | undefined;
  #holdUntil = 0;
  #workUntil = 0;

  /** The last claim told of waiting items. */
  want(now: number): void {
    if (this.#wantedSince !== undefined) return;
    this.#wantedSince = now;
    this.#holdUntil = now + holdMs;
    this.#workUntil = 0;
  }

  get wanted(): boolean {
    return this.#wantedSince !== undefined;
  }

  /** A claim for one item came back; nothing found means nothing waits. */
  answered(found: boolean): void {
    this.#wantedSince = found ? performance.now() : undefined;
    this.#holdUntil = performance.now() + holdMs;
  }

  decide(quiet: boolean, now: number): 'ordinary' | 'alone' | 'wait' {
    if (this.#wantedSince === undefined) return 'ordinary';
    if (quiet || now - this.#wantedSince > enoughMs) return 'alone';
    if (now < this.#holdUntil) return 'wait';
    if (this.#workUntil < this.#holdUntil) this.#workUntil = now + workMs;
    if (now < this.#workUntil) return 'ordinary';
    this.#holdUntil = now + holdMs;
    return 'wait';
  }
}

const holdMs = 2000;
const workMs = 10_000;
const enoughMs = 60_000;
