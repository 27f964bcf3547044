import type { EventEmitter } from 'node:events';
import { Batcher } from '../batching/batcher.ts';
import { type Database, isPassing } from '../database/database.ts';
import { statementRetry } from '../database/outage.ts';
import { LeaseLostError, messageOf } from '../errors.ts';
import { backoffMs } from '../resilience/backoff.ts';
import { pause } from '../resilience/deadline.ts';
import { toEvent, type WorkerEvents } from './events.ts';
import { type Failure, type ReportedFailure, reportFailures, toRefused } from './failures.ts';

export interface FailureReporterOptions {
  readonly database: Database;
  readonly worker: string;
  readonly keepMs: number;
  readonly events: EventEmitter<WorkerEvents>;
}

/** The same outage is logged at most this often. */
const outageLogMs = 10_000;

/** Reports failed attempts to the database until it answers, then publishes the outcome: log and events. */
export class FailureReporter {
  readonly #options: FailureReporterOptions;
  readonly #free: Batcher<Failure, ReportedFailure>;
  #outageLoggedAt = Number.NEGATIVE_INFINITY;

  constructor(options: FailureReporterOptions) {
    this.#options = options;
    this.#free = new Batcher({ send: (failures) => this.#send(failures), maxBatch: 500, maxInFlight: 2 });
  }

  /** Failures of free jobs share a statement. A failed job of a lane is reported with its lane, and waits for no other failure. */
  async report(failure: Failure): Promise<ReportedFailure> {
    const reported = failure.job.lane
      ? ((await this.#send([failure]))[0] as ReportedFailure)
      : await this.#free.add(failure);
    this.#tell(failure, reported);
    return reported;
  }

  /** Repeating is safe: a failure that was counted no longer has that position, or that number of attempts. */
  async #send(failures: readonly Failure[]): Promise<ReportedFailure[]> {
    const { database, worker, keepMs, events } = this.#options;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await reportFailures(database, worker, keepMs, failures);
      } catch (error) {
        events.emit('error', error as Error);
        if (failures.every(({ job }) => job.claim.lost)) return failures.map(() => lost);
        if (!isPassing(error) && attempt > 0) return this.#sendApart(failures, error);
        await pause(backoffMs(attempt, statementRetry));
      }
    }
  }

  /** The database refuses the statement: find the job at fault, and end it with an error that can be stored. */
  async #sendApart(failures: readonly Failure[], refusal: unknown): Promise<ReportedFailure[]> {
    const { database, worker, keepMs } = this.#options;
    const [first] = failures;
    if (failures.length > 1) {
      const half = Math.ceil(failures.length / 2);
      return [...(await this.#send(failures.slice(0, half))), ...(await this.#send(failures.slice(half)))];
    }
    if (!first) return [];
    database.logger.error(
      { job: first.job.id, kind: first.job.kind, error: messageOf(refusal) },
      'PostgreSQL refuses to store how a job failed; the job ends as a dead letter',
    );
    try {
      return await reportFailures(database, worker, keepMs, [
        toRefused(first.job, 'FAILURE_REFUSED', refusal),
      ]);
    } catch (error) {
      if (isPassing(error)) return this.#send(failures);
      database.logger.error(
        { job: first.job.id, kind: first.job.kind, error: messageOf(error) },
        'a job can neither fail nor end; it comes back when its lease is over',
      );
      return [lost];
    }
  }

  #tell(failure: Failure, { outcome, isLaneBlocked }: ReportedFailure): void {
    const { events, database } = this.#options;
    const { job, error, delayMs } = failure;
    const event = { ...toEvent(job), error: error.message };
    const fields = {
      job: job.id,
      kind: job.kind,
      attempt: event.attempt,
      code: error.code,
      error: error.message,
    };
    if (failure.isOutage) return this.#tellOutage(failure, outcome);
    if (outcome === 'QUEUED') {
      const level = failure.cost === 0 ? 'debug' : 'warn';
      database.logger[level]({ ...fields, delayMs: Math.round(delayMs) }, 'a job failed and will run again');
      events.emit('retried', { ...event, delayMs });
    } else if (outcome === 'FAILED') {
      database.logger.error(fields, 'a job failed for good (tallyman jobs retry runs it again)');
      events.emit('failed', event);
    } else if (outcome === 'DEAD_LETTER') {
      database.logger.error(
        fields,
        'a job used up its attempts (tallyman dead-letters redrive runs it again)',
      );
      events.emit('dead', event);
    } else if (outcome === 'MISSING') events.emit('discarded', { ...event, reason: 'cancelled' });
    // The observers learned of the lost lease when the handler did.
    else if (!(job.controller?.signal.reason instanceof LeaseLostError))
      events.emit('discarded', { ...event, reason: 'lease lost' });
    if (isLaneBlocked)
      database.logger.error(
        { lane: job.lane?.key, job: job.id },
        'a lane is blocked: nothing behind this job runs until it is redriven to the head or the lane is unblocked',
      );
  }

  #tellOutage({ job, error, delayMs }: Failure, outcome: ReportedFailure['outcome']): void {
    const event = toEvent(job);
    this.#options.events.emit('handedBack', { ...event, error: error.message, delayMs });
    const now = performance.now();
    if (outcome === 'LOST' || now - this.#outageLoggedAt < outageLogMs) return;
    this.#outageLoggedAt = now;
    this.#options.database.logger.warn(
      { job: job.id, kind: job.kind, error: error.message },
      'the database was away while jobs ran; they are handed back and lose no attempt',
    );
  }
}

const lost: ReportedFailure = { outcome: 'LOST', isLaneLetGo: false, isLaneBlocked: false };
