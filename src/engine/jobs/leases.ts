import type { EventEmitter } from 'node:events';
import { LeaseLostError, TallymanError } from '../errors.ts';
import type { Claim } from './claim.ts';
import { toEvent, type WorkerEvents } from './events.ts';

/** The claims that this worker knows it holds, and what happens to their jobs when it loses them. */
export class Leases {
  readonly #claims = new Map<string, Claim>();
  readonly #events: EventEmitter<WorkerEvents>;
  /** A heartbeat renewed a claim that is not known here, or a claim was sent and its answer lost. */
  #mayHoldUnknown = false;

  constructor(events: EventEmitter<WorkerEvents>) {
    this.#events = events;
  }

  add(claims: readonly Claim[]): void {
    for (const claim of claims) this.#claims.set(claim.token, claim);
  }

  /** The tokens of all claims that are known. */
  get tokens(): string[] {
    return [...this.#claims.keys()];
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
    // The heartbeat may also renew a claim that is done and about to be deleted, so it is not known here: asking costs little.
    if ([...tokens].some((token) => !this.#claims.has(token))) this.#mayHoldUnknown = true;
  }

  /** The answer to a claim was lost: this worker may hold claims in the database that are unknown here. */
  suspectUnknown(): void {
    this.#mayHoldUnknown = true;
  }

  takeSuspicion(): boolean {
    const suspected = this.#mayHoldUnknown;
    this.#mayHoldUnknown = false;
    return suspected;
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

  /** Ends one run of a job. A late notice does not affect the next run, which has another position. */
  cancel(jobId: string, pos: string): void {
    for (const claim of this.#claims.values())
      for (const job of claim.jobs) {
        if (job.id !== jobId || job.pos !== pos) continue;
        if (job.isRunning) job.abort(new TallymanError('CANCELLED', `job ${jobId} was cancelled`));
        else job.ended = true;
      }
  }
}
