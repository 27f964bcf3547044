import { Batcher } from '../batching/batcher.ts';
import { wakeAfterCommit } from '../database/after-commit.ts';
import { type Database, isConnectionError, type Queryable } from '../database/database.ts';
import { requireTransaction } from '../database/require-transaction.ts';
import { messageOf, TallymanError } from '../errors.ts';
import { enqueueAlike } from '../sql/enqueue-alike.ts';
import { enqueueFull } from '../sql/enqueue-full.ts';
import { enqueuePlain } from '../sql/enqueue-plain.ts';
import { streamsOf } from '../sql/streams-of.ts';
import type { Notifier } from '../wakeups/notifier.ts';
import type { Hint } from '../wakeups/wakeup.ts';
import { BusyLanes, lockOf } from './busy-lanes.ts';
import { type Claimant, enqueueAndClaim, type FindClaimant } from './claim-at-enqueue.ts';
import type { Kind } from './kind.ts';
import {
  alikeArguments,
  areAlike,
  type EnqueueOptions,
  type NewJob,
  type NewJobRules,
  numberStreams,
  prepare,
  toJson,
} from './new-job.ts';
import { traceSend } from './trace.ts';

export interface Enqueued {
  readonly id: string;
  /** True when the dedupe key was taken: `id` is the first job's. */
  readonly existing: boolean;
}

/** A lock was not granted within the limit. */
const lockTimeout = '55P03';

/** Writes jobs to the database: one by group commit, many in bulk, or inside the caller's transaction. */
export class Enqueuer {
  readonly #database: Database;
  readonly #notifier: Notifier;
  readonly #rules: NewJobRules;
  readonly #batcher: Batcher<NewJob, Enqueued>;
  readonly #busyLanes = new BusyLanes<NewJob, Enqueued>((jobs) => this.#commit(jobs, 2000), lockOf);
  readonly #streams = new Set<string>();
  readonly #workers = new Set<FindClaimant>();

  constructor(database: Database, notifier: Notifier, rules: NewJobRules) {
    this.#database = database;
    this.#notifier = notifier;
    this.#rules = rules;
    this.#batcher = new Batcher({ send: (jobs) => this.#sendBatch(jobs), maxBatch: 1000, maxInFlight: 2 });
  }

  /** Lets an idle worker of this process claim jobs in the commit that enqueues them. */
  addWorker(find: FindClaimant): () => void {
    this.#workers.add(find);
    return () => this.#workers.delete(find);
  }

  /** Resolves when what callers have asked for is written, but for what waits for a lock of somebody else. */
  idle(): Promise<void> {
    return this.#batcher.idle();
  }

  /** One job; resolves after it is durable. Concurrent callers share a commit; with `tx` it is part of the caller's. */
  one<O, I>(kind: Kind<O, I>, payload: I, options: EnqueueOptions = {}, tx?: Queryable): Promise<Enqueued> {
    return traceSend(kind.name, options.queue ?? kind.queue, 1, (trace) =>
      this.#one(kind, payload, options, trace, tx),
    );
  }

  async #one<O, I>(
    kind: Kind<O, I>,
    payload: I,
    options: EnqueueOptions,
    trace: string | undefined,
    tx: Queryable | undefined,
  ): Promise<Enqueued> {
    if (tx !== undefined) requireTransaction(tx);
    const prepared = prepare(kind, payload, options, trace, this.#rules);
    const job = prepared instanceof Promise ? await prepared : prepared;
    if (!tx) return this.#busyLanes.follow(job) ?? this.#batcher.add(job);
    const [answer] = await this.#sendIn(tx, [job]);
    return answer as Enqueued;
  }

  /** Many jobs in one commit, all of them or none; with `tx` they are part of the caller's. */
  async many<O, I>(
    kind: Kind<O, I>,
    items: readonly ({ readonly payload: I } & EnqueueOptions)[],
    tx?: Queryable,
  ): Promise<Enqueued[]> {
    if (items.length === 0) return [];
    return traceSend(kind.name, items[0]?.queue ?? kind.queue, items.length, (trace) =>
      this.#many(kind, items, trace, tx),
    );
  }

  async #many<O, I>(
    kind: Kind<O, I>,
    items: readonly ({ readonly payload: I } & EnqueueOptions)[],
    trace: string | undefined,
    tx: Queryable | undefined,
  ): Promise<Enqueued[]> {
    if (tx !== undefined) requireTransaction(tx);
    const jobs: NewJob[] = [];
    for (const item of items) {
      const job = prepare(kind, item.payload, item, trace, this.#rules);
      jobs.push(job instanceof Promise ? await job : job);
    }
    if (tx) return this.#sendIn(tx, jobs);
    try {
      return await this.#commitPatiently(jobs);
    } catch (error) {
      throw isConnectionError(error) ? outcomeUnknown(jobs, error) : error;
    }
  }

  /** In the caller's transaction. */
  async #sendIn(tx: Queryable, jobs: NewJob[]): Promise<Enqueued[]> {
    const answers = await this.#send(jobs, tx, true);
    wakeAfterCommit(tx, hintsOf(jobs, answers));
    return answers;
  }

  async #sendBatch(jobs: NewJob[]): Promise<(Enqueued | Error | Promise<Enqueued>)[]> {
    const claimant = this.#claimantFor(jobs);
    return (claimant && (await this.#sendClaimed(jobs, claimant))) ?? this.#sendTogether(jobs);
  }

  /** Jobs whose lane is locked by another transaction wait separately; the rest of the batch does not wait for them. */
  async #sendTogether(jobs: NewJob[]): Promise<(Enqueued | Error | Promise<Enqueued>)[]> {
    try {
      const answers = await this.#commit(jobs, 0);
      return answers.map((answer, i) => answer ?? this.#busyLanes.wait(jobs[i] as NewJob));
    } catch (error) {
      if ((error as { code?: string }).code === lockTimeout) return this.#sendHalves(jobs);
      if (!isConnectionError(error)) return this.#sendApart(jobs, error);
      // The commit may have happened. Only a dedupe key makes it safe to repeat.
      if (jobs.every((job) => job.row.x !== undefined)) return this.#commitPatiently(jobs);
      throw outcomeUnknown(jobs, error);
    }
  }

  /** Another open transaction holds a key or a new lane. Jobs that need it wait alone, the others proceed. */
  async #sendHalves(jobs: NewJob[]): Promise<(Enqueued | Error | Promise<Enqueued>)[]> {
    const [first] = jobs;
    if (jobs.length === 1 && first) return [this.#busyLanes.wait(first)];
    const half = Math.ceil(jobs.length / 2);
    const sent = await Promise.all(
      [jobs.slice(0, half), jobs.slice(half)].map((part) =>
        this.#sendTogether(part).catch((error) => part.map(() => error as Error)),
      ),
    );
    return sent.flat();
  }

  #claimantFor(jobs: NewJob[]): Claimant | undefined {
    const [first] = jobs;
    if (!first || this.#workers.size === 0 || !this.#database.isHotConnectionFree) return undefined;
    if (!this.#streams.has(streamKey(first.queue, first.priority)) || !areAlike(jobs)) return undefined;
    for (const find of this.#workers) {
      const claimant = find(first.queue, first.row.k, jobs.length);
      if (claimant) return claimant;
    }
    return undefined;
  }

  /** Undefined: it was not possible, and nothing was written. */
  async #sendClaimed(jobs: NewJob[], claimant: Claimant): Promise<Enqueued[] | undefined> {
    try {
      const ids = await enqueueAndClaim(this.#database, jobs, claimant);
      return ids?.map((id) => ({ id, existing: false }));
    } catch (error) {
      throw outcomeUnknown(jobs, error);
    }
  }

  /** The database refused a batch, and nothing of it was written: one caller's mistake must not fail the others. */
  async #sendApart(jobs: NewJob[], refusal: unknown): Promise<(Enqueued | Error | Promise<Enqueued>)[]> {
    if (jobs.length > 1)
      return (
        await Promise.all(jobs.map((job) => this.#sendTogether([job]).catch((error) => [error as Error])))
      ).flat();
    const { code } = refusal as { code?: string };
    if (code !== '22P02' && code !== '22P05') throw refusal;
    throw new TallymanError(
      'VALIDATION_ERROR',
      `payload of kind "${jobs[0]?.row.k}" holds text that PostgreSQL cannot keep: ${messageOf(refusal)}`,
      { cause: refusal },
    );
  }

  /**
   * Creates a stream in its own transaction. Inside the caller's, everybody who enqueues to a new queue would wait until
   * the caller commits.
   */
  async #ensureStreams(queues: string[], priorities: number[]): Promise<void> {
    const missing = queues
      .map((queue, i) => streamKey(queue, priorities[i]))
      .filter((key) => !this.#streams.has(key));
    if (missing.length === 0) return;
    await streamsOf(this.#database, { queues, priorities });
    for (const key of missing) this.#streams.add(key);
  }

  /** Waits for locks as long as it takes, in pieces: a statement without an answer for long would be given up. */
  async #commitPatiently(jobs: NewJob[]): Promise<Enqueued[]> {
    for (;;) {
      try {
        return await this.#commit(jobs, 2000);
      } catch (error) {
        if ((error as { code?: string }).code !== lockTimeout) throw error;
      }
    }
  }

  /** `waitMs`: how long to wait for locks. Undefined: not written, its lane is busy (0 only). */
  async #commit(jobs: NewJob[], waitMs: 2000): Promise<Enqueued[]>;
  async #commit(jobs: NewJob[], waitMs: 0): Promise<(Enqueued | undefined)[]>;
  async #commit(jobs: NewJob[], waitMs: number) {
    const queues = queuesOf(jobs);
    const isCarrying = this.#notifier.inTransaction(queues);
    const answers = await this.#send(jobs, this.#database, isCarrying, waitMs);
    this.#notifier.committed(hintsOf(jobs, answers), isCarrying);
    return answers;
  }

  async #send(jobs: NewJob[], on: Queryable, notify: boolean): Promise<Enqueued[]>;
  async #send(
    jobs: NewJob[],
    on: Queryable,
    notify: boolean,
    waitMs: number,
  ): Promise<(Enqueued | undefined)[]>;
  async #send(jobs: NewJob[], on: Queryable, notify: boolean, waitMs?: number) {
    const { queues, priorities } = numberStreams(jobs);
    await this.#ensureStreams(queues, priorities);
    if (areAlike(jobs)) return fresh(await enqueueAlike(on, { ...alikeArguments(jobs), notify }));
    const args = { queues, priorities, jobs: toJson(jobs), notify };
    if (jobs.every((job) => job.plain)) return fresh(await enqueuePlain(on, args));
    const rows = await enqueueFull(on, { ...args, waitMs: waitMs ?? null });
    return rows.map(({ id, existing }) => (id === undefined ? undefined : { id, existing }));
  }
}

const fresh = (ids: readonly string[]): Enqueued[] => ids.map((id) => ({ id, existing: false }));

const outcomeUnknown = (jobs: NewJob[], error: unknown): TallymanError =>
  new TallymanError(
    'OUTCOME_UNKNOWN',
    `The connection was lost while ${jobs.length} job(s) were being committed (${messageOf(error)}): they may or may not be there. Give a dedupeKey to make repeating safe.`,
    { cause: error },
  );

const streamKey = (queue: string, priority: number | undefined): string => `${priority} ${queue}`;

/** A hint for each queue. It names the last job that was written, and was not there before. */
function hintsOf(jobs: readonly NewJob[], answers: readonly (Enqueued | undefined)[]): readonly Hint[] {
  const last = new Map<string, Hint>();
  for (let i = jobs.length - 1; i >= 0; i -= 1) {
    const { queue } = jobs[i] as NewJob;
    const answer = answers[i];
    if (answer && !answer.existing && !last.has(queue)) last.set(queue, { queue, jobId: answer.id });
  }
  return [...last.values()];
}

const queuesOf = (jobs: NewJob[]): Set<string> => new Set(jobs.map((job) => job.queue));
