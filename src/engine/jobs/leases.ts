import type { EventEmitter } from 'node:events';
import { LeaseLostError, TallymanError } from '../errors.ts';
import type { Claim } from './claim.ts';
import { toEvent, type WorkerEvents } from './events.ts';

/** The claims that this worker knows it holds, and what becomes of their jobs when it no longer does. */
export class Leases {
  readonly #claims = new Map<string, Claim>();
  readonly #events: EventEmitter<WorkerEvents>;
  #unknownBefore: ReadonlySet<string> = new Set();
  #strays: string[] = [];

  constructor(events: EventEmitter<WorkerEvents>) {
    this.#events = events;
  }

  add(claims: readonly Claim[]): void {
    for (const claim of claims) this.#claims.set(claim.token, claim);
  }

  /** Items of a queue that are claimed, and not confirmed. */
  heldOf(queue: string): number {
    let held = 0;
    for (const claim of this.#claims.values()) if (claim.queue === queue && !claim.lost) held += claim.left;
    return held;
  }

  forgetDone(): void {
    for (const [token, claim] of this.#claims) if (claim.left === 0 || claim.lost) this.#claims.delete(token);
  }

  /** Ends every claim that a heartbeat, begun after it was taken, no longer found. */
  renewed(tokens: ReadonlySet<string>, startedAt: number): void {
    this.lose(
      [...this.#claims.values()].filter((c) => c.left > 0 && c.takenAt < startedAt && !tokens.has(c.token)),
      'its lease ran out',
    );
    const unknown = [...tokens].filter((token) => !this.#claims.has(token));
    this.#strays = unknown.filter((token) => this.#unknownBefore.has(token));
    this.#unknownBefore = new Set(unknown);
  }

  /**
   * Tokens that two heartbeats in a row renewed and nobody here knows. (After one it may be a claim that has just been
   * made, or one that is done and about to be dropped.)
   */
  takeStrays(): string[] {
    return this.#strays.splice(0).filter((token) => !this.#claims.has(token));
  }

  lose(claims: readonly Claim[], why: string): void {
    for (const claim of claims) {
      if (claim.lost) continue;
      claim.lost = true;
      for (const job of claim.jobs) {
        if (!job.isRunning) continue;
        const error = new LeaseLostError(`job ${job.id}: ${why}`);
        job.abort(error);
        job.span?.failed(error);
        this.#events.emit('discarded', { ...toEvent(job), reason: why });
      }
    }
  }

  cancel(jobId: string): void {
    for (const claim of this.#claims.values())
      for (const job of claim.jobs) {
        if (job.id !== jobId) continue;
        if (job.isRunning) job.abort(new TallymanError('CANCELLED', `job ${jobId} was cancelled`));
        else job.ended = true;
      }
  }
}
