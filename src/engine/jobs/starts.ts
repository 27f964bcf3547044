import { Batcher } from '../batching/batcher.ts';
import type { Database } from '../database/database.ts';
import { statementRetry } from '../database/outage.ts';
import { backoffMs } from '../resilience/backoff.ts';
import { pause } from '../resilience/deadline.ts';
import { type ClaimedJob, markStarted } from './claim.ts';

/** A job that runs alone is recorded as started after this time. */
const loneStartMs = 20;

/**
 * Records starts in the database, so that a crash is charged to the right job. Most starts are not recorded: among several
 * jobs it would not be known which one killed the worker anyway, and a write for each job costs more than the job.
 */
export class Starts {
  readonly #database: Database;
  readonly #worker: string;
  readonly #onError: (error: unknown) => void;
  readonly #jobs: Batcher<ClaimedJob, boolean>;
  #loneTimer: NodeJS.Timeout | undefined;

  constructor(database: Database, worker: string, onError: (error: unknown) => void) {
    this.#database = database;
    this.#worker = worker;
    this.#onError = onError;
    this.#jobs = new Batcher({ send: (jobs) => this.#send(jobs), maxBatch: 500, maxInFlight: 2 });
  }

  /** Before the job starts. False: its claim is lost, it must not start. */
  record(job: ClaimedJob): Promise<boolean> {
    return this.#jobs.add(job);
  }

  /** Records the only job that this worker holds, if it is slow: if the worker dies, that job is charged. */
  recordLone(find: () => ClaimedJob | undefined): void {
    this.#loneTimer ??= setTimeout(() => {
      this.#loneTimer = undefined;
      const job = find();
      if (!job || job.isStartRecorded || job.isStartNoted) return;
      job.isStartNoted = true;
      void this.record(job);
    }, loneStartMs).unref();
  }

  stop(): void {
    clearTimeout(this.#loneTimer);
  }

  async #send(jobs: readonly ClaimedJob[]): Promise<boolean[]> {
    for (let attempt = 0; jobs.some((job) => !job.claim.lost); attempt += 1) {
      try {
        const lost = await markStarted(this.#database, this.#worker, jobs);
        return jobs.map((job) => !lost.has(job.claim.token));
      } catch (error) {
        this.#onError(error);
        await pause(backoffMs(attempt, statementRetry));
      }
    }
    return jobs.map(() => false);
  }
}
