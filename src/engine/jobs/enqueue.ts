import { Batcher } from '../batching/batcher.ts';
import { type Database, isConnectionError, type Queryable, type RawRow } from '../database/database.ts';
import { messageOf, TallymanError } from '../errors.ts';
import type { Notifier } from '../wakeups/notifier.ts';
import { type ClaimAnswer, claimedAtOnce, type PackedJob } from './claim.ts';
import { type Kind, type Priority, requirePriority, requireText, requireWhole } from './kind.ts';
import { check } from './standard-schema.ts';
import { traceSend } from './trace.ts';

export interface EnqueueOptions {
  /** Default: the kind's. */
  readonly queue?: string;
  readonly priority?: Priority;
  /** Jobs of one lane run strictly one after another. Default: the kind's lane key, or none. */
  readonly lane?: string;
  /** Not before this time. */
  readonly scheduledAt?: Date;
  /** Not before this many milliseconds from now, by the database's clock. */
  readonly delayMs?: number;
  /** Enqueueing the same key again returns the first job and adds none. Unique for each tenant and kind. */
  readonly dedupeKey?: string;
  /** Default `default`. */
  readonly tenantId?: string;
  readonly maxAttempts?: number;
  /** Default: the job's own id, or inside a handler that of the running job. */
  readonly correlationId?: string;
  /** See the kind's `lane.latestOnly`. */
  readonly latestOnly?: boolean;
}

export interface Enqueued {
  readonly id: string;
  /** True when the dedupe key was taken: `id` is the first job's. */
  readonly existing: boolean;
}

/** A job as it goes to SQL; short names, since they are repeated in every row of a batch. */
interface NewJob {
  readonly queue: string;
  readonly priority: Priority;
  /** Neither lane nor dedupe key. */
  readonly plain: boolean;
  readonly row: {
    s: number;
    readonly k: string;
    /** Spliced in as it is: already JSON text. */
    readonly p: string;
    readonly m: number;
    readonly t: string;
    readonly d?: number;
    readonly at?: string;
    readonly c?: string;
    readonly x?: string;
    readonly xk?: string | null;
    readonly l?: string;
    readonly b?: string;
    readonly o?: boolean;
    readonly w?: string;
  };
}

const enqueuePlain = {
  name: 'tm_enqueue_plain',
  text: 'select tallyman.enqueue_plain($1, $2, $3, $4) as ids',
};
const enqueueFull = {
  name: 'tm_enqueue_full',
  text: 'select id, existing from tallyman.enqueue_full($1, $2, $3, $4)',
};

const enqueueClaimed = {
  name: 'tm_enqueue_claimed',
  text: 'select ids, token, stream, created from tallyman.enqueue_claimed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)',
};

/** A worker of this process that claims in the commit of an enqueue. */
export interface Claimant {
  readonly worker: string;
  readonly leaseMs: number;
  readonly staleMs: number;
  /** To be called in any case; undefined: nothing came of it. */
  readonly answer: (answer: ClaimAnswer | undefined) => void;
}

/** Asks a worker of this process before these jobs of one queue are committed. Undefined: not now, or not them. */
export type FindClaimant = (queue: string, kinds: readonly string[]) => Claimant | undefined;

export interface EnqueuerOptions {
  readonly maxPayloadBytes: number;
  readonly defaultMaxAttempts: number;
}

/** Puts jobs into the database: alone by group commit, in bulk, or inside the caller's transaction. */
export class Enqueuer {
  readonly #database: Database;
  readonly #notifier: Notifier;
  readonly #options: EnqueuerOptions;
  readonly #batcher: Batcher<NewJob, Enqueued>;
  readonly #streams = new Set<string>();
  readonly #workers = new Set<FindClaimant>();

  constructor(database: Database, notifier: Notifier, options: EnqueuerOptions) {
    this.#database = database;
    this.#notifier = notifier;
    this.#options = options;
    this.#batcher = new Batcher({ send: (jobs) => this.#sendBatch(jobs), maxBatch: 1000, maxInFlight: 2 });
  }

  /** An idle worker need not be told of new work and then ask for it: it claims in the commit that brings it. */
  addWorker(find: FindClaimant): () => void {
    this.#workers.add(find);
    return () => this.#workers.delete(find);
  }

  /** One job; resolves after it is durable. Concurrent callers share a commit; with `tx` it is part of the caller's. */
  one<P>(kind: Kind<P>, payload: P, options: EnqueueOptions = {}, tx?: Queryable): Promise<Enqueued> {
    return traceSend(kind.name, options.queue ?? kind.queue, 1, (trace) =>
      this.#one(kind, payload, options, trace, tx),
    );
  }

  async #one<P>(
    kind: Kind<P>,
    payload: P,
    options: EnqueueOptions,
    trace: string | undefined,
    tx: Queryable | undefined,
  ): Promise<Enqueued> {
    const job = await this.#prepare(kind, payload, options, trace);
    if (!tx) return this.#batcher.add(job);
    const [answer] = await this.#send([job], tx, true);
    return answer as Enqueued;
  }

  /** Many jobs in one commit, all of them or none; with `tx` they are part of the caller's. */
  async many<P>(
    kind: Kind<P>,
    items: readonly ({ readonly payload: P } & EnqueueOptions)[],
    tx?: Queryable,
  ): Promise<Enqueued[]> {
    if (items.length === 0) return [];
    return traceSend(kind.name, items[0]?.queue ?? kind.queue, items.length, (trace) =>
      this.#many(kind, items, trace, tx),
    );
  }

  async #many<P>(
    kind: Kind<P>,
    items: readonly ({ readonly payload: P } & EnqueueOptions)[],
    trace: string | undefined,
    tx: Queryable | undefined,
  ): Promise<Enqueued[]> {
    const jobs: NewJob[] = [];
    for (const item of items) jobs.push(await this.#prepare(kind, item.payload, item, trace));
    if (tx) return this.#send(jobs, tx, true);
    const answers = await this.#send(jobs, this.#database, this.#notifier.inTransaction());
    this.#notifier.committed(queuesOf(jobs));
    return answers;
  }

  /** Everything that can be wrong with the caller's words is found here, before anything is written. */
  async #prepare<P>(
    kind: Kind<P>,
    given: P,
    options: EnqueueOptions,
    trace: string | undefined,
  ): Promise<NewJob> {
    let payload = given;
    if (kind.schema) {
      const checked = await check(kind.schema, given);
      if (!checked.ok)
        throw new TallymanError(
          'VALIDATION_ERROR',
          `payload of kind "${kind.name}" is refused at ${checked.path || 'its root'}: ${checked.problem}`,
          { details: { kind: kind.name, path: checked.path } },
        );
      payload = checked.value;
    }
    const text = JSON.stringify(payload ?? null);
    if (text === undefined)
      throw new TallymanError('VALIDATION_ERROR', `payload of kind "${kind.name}" cannot be written as JSON`);
    if (text.includes('\\u0000') && holdsNul.test(text))
      throw new TallymanError(
        'VALIDATION_ERROR',
        `payload of kind "${kind.name}" contains a NUL character (\\u0000), which PostgreSQL cannot keep`,
      );
    const limit = this.#options.maxPayloadBytes;
    if (text.length * 3 > limit && Buffer.byteLength(text) > limit)
      throw new TallymanError(
        'PAYLOAD_TOO_LARGE',
        `payload of kind "${kind.name}" has ${Buffer.byteLength(text)} bytes; the limit is ${limit}. Store it elsewhere and pass a reference, or raise jobs.maxPayloadBytes.`,
      );
    const queue = options.queue ?? kind.queue;
    const priority = options.priority ?? kind.priority;
    const lane = options.lane ?? kind.laneKey?.(payload);
    if (options.queue !== undefined) requireText(queue, 'queue', 128);
    if (options.priority !== undefined) requirePriority(priority);
    if (options.maxAttempts !== undefined) requireWhole(options.maxAttempts, 'maxAttempts', 1, 1000);
    if (options.tenantId !== undefined) requireText(options.tenantId, 'tenantId', 128);
    if (options.correlationId !== undefined) requireText(options.correlationId, 'correlationId', 256);
    if (lane !== undefined) requireText(lane, 'lane', 256);
    if (options.dedupeKey !== undefined) requireText(options.dedupeKey, 'dedupeKey', 512);
    checkTimes(options);
    return {
      queue,
      priority,
      plain: lane === undefined && options.dedupeKey === undefined,
      row: {
        s: 1,
        k: kind.name,
        p: text,
        m: options.maxAttempts ?? kind.maxAttempts ?? this.#options.defaultMaxAttempts,
        t: options.tenantId ?? 'default',
        ...(options.delayMs !== undefined && { d: options.delayMs }),
        ...(options.scheduledAt && { at: options.scheduledAt.toISOString() }),
        ...(options.correlationId !== undefined && { c: options.correlationId }),
        ...(options.dedupeKey !== undefined && { x: options.dedupeKey, xk: kind.dedupeKeep }),
        ...(lane !== undefined && { l: lane, b: kind.lanePolicy, o: options.latestOnly ?? kind.latestOnly }),
        ...(trace !== undefined && { w: trace }),
      },
    };
  }

  async #sendBatch(jobs: NewJob[]): Promise<(Enqueued | Error)[]> {
    const claimant = this.#claimantFor(jobs);
    return (claimant && (await this.#sendClaimed(jobs, claimant))) ?? this.#sendAlone(jobs);
  }

  async #sendAlone(jobs: NewJob[]): Promise<(Enqueued | Error)[]> {
    try {
      const answers = await this.#send(jobs, this.#database, this.#notifier.inTransaction());
      this.#notifier.committed(queuesOf(jobs));
      return answers;
    } catch (error) {
      if (!isConnectionError(error)) return this.#sendApart(jobs, error);
      // The commit may have happened. Only a key makes it safe to ask again.
      if (jobs.every((job) => job.row.x !== undefined)) return this.#send(jobs, this.#database, true);
      throw outcomeUnknown(jobs, error);
    }
  }

  #claimantFor(jobs: NewJob[]): Claimant | undefined {
    const [first] = jobs;
    if (!first || this.#workers.size === 0) return undefined;
    const { queue, priority } = first;
    if (!this.#streams.has(streamKey(queue, priority))) return undefined;
    if (!jobs.every((job) => isPlainAndDue(job) && job.queue === queue && job.priority === priority))
      return undefined;
    const kinds = jobs.map((job) => job.row.k);
    for (const find of this.#workers) {
      const claimant = find(queue, kinds);
      if (claimant) return claimant;
    }
    return undefined;
  }

  /** Undefined: it could not be done so, and nothing was written. */
  async #sendClaimed(jobs: NewJob[], claimant: Claimant): Promise<Enqueued[] | undefined> {
    const { queue = '', priority } = jobs[0] ?? {};
    let row: RawRow | undefined;
    try {
      [row] = await this.#database.run(enqueueClaimed, [
        queue,
        priority,
        jobs.map(({ row }) => row.k),
        jobs.map(({ row }) => row.p),
        jobs.map(({ row }) => row.m),
        jobs.map(({ row }) => row.t),
        jobs.map(({ row }) => row.c ?? null),
        jobs.map(({ row }) => row.w ?? null),
        claimant.worker,
        claimant.leaseMs,
        claimant.staleMs,
      ]);
    } catch (error) {
      claimant.answer(undefined);
      if (isConnectionError(error)) throw outcomeUnknown(jobs, error);
      return undefined;
    }
    const [ids, token, stream, created] = row ?? [];
    if (!ids || !token) {
      claimant.answer(undefined);
      return undefined;
    }
    const packed = idsOf(ids).map((id, i) => packedAs(id, jobs[i] as NewJob, Number(created)));
    claimant.answer(claimedAtOnce(token, Number(stream), packed));
    return packed.map(([id]) => ({ id, existing: false }));
  }

  /** The database refused a batch, and nothing of it was written: whoever is to blame must not take others along. */
  async #sendApart(jobs: NewJob[], refusal: unknown): Promise<(Enqueued | Error)[]> {
    if (jobs.length > 1)
      return (await Promise.all(jobs.map((job) => this.#sendAlone([job]).catch((error) => [error])))).flat();
    const { code } = refusal as { code?: string };
    if (code !== '22P02' && code !== '22P05') throw refusal;
    throw new TallymanError(
      'VALIDATION_ERROR',
      `payload of kind "${jobs[0]?.row.k}" holds text that PostgreSQL cannot keep: ${messageOf(refusal)}`,
      { cause: refusal },
    );
  }

  /**
   * A stream is made in a transaction of its own. Made inside the caller's, it would keep everybody else who enqueues
   * to a new queue waiting until the caller commits.
   */
  async #ensureStreams(queues: string[], priorities: number[]): Promise<void> {
    const missing = queues
      .map((queue, i) => streamKey(queue, priorities[i]))
      .filter((key) => !this.#streams.has(key));
    if (missing.length === 0) return;
    await this.#database.query('select tallyman.streams_of($1, $2)', [queues, priorities]);
    for (const key of missing) this.#streams.add(key);
  }

  async #send(jobs: NewJob[], on: Queryable, notify: boolean): Promise<Enqueued[]> {
    const { queues, priorities } = numberStreams(jobs);
    await this.#ensureStreams(queues, priorities);
    const plain = jobs.every((job) => job.plain);
    const values = [queues, priorities, toJson(jobs), notify];
    const statement = plain ? enqueuePlain : enqueueFull;
    if (on !== this.#database) {
      const { rows } = await on.query(statement.text, values);
      if (plain) return idsOf(rows[0]?.ids).map((id) => ({ id, existing: false }));
      return rows.map((row) => ({ id: String(row.id), existing: row.existing === true }));
    }
    const rows = await this.#database.run(statement, values);
    if (plain) return idsOf(rows[0]?.[0]).map((id) => ({ id, existing: false }));
    return rows.map(([id, existing]) => ({ id: String(id), existing: existing === 't' }));
  }
}

const outcomeUnknown = (jobs: NewJob[], error: unknown): TallymanError =>
  new TallymanError(
    'OUTCOME_UNKNOWN',
    `The connection was lost while ${jobs.length} job(s) were being committed (${messageOf(error)}): they may or may not be there. Give a dedupeKey to make repeating safe.`,
    { cause: error },
  );

/** An int8[] as text, or as a client with array parsers has read it. */
function idsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : String(value).slice(1, -1).split(',');
}

/** Jobs name their (queue, priority) by index, so that SQL looks each pair up once. */
function numberStreams(jobs: NewJob[]): { queues: string[]; priorities: number[] } {
  const queues: string[] = [];
  const priorities: number[] = [];
  let last: NewJob | undefined;
  for (const job of jobs) {
    if (last && last.queue === job.queue && last.priority === job.priority) {
      job.row.s = last.row.s;
    } else {
      let i = queues.findIndex((queue, at) => queue === job.queue && priorities[at] === job.priority);
      if (i < 0) {
        i = queues.push(job.queue) - 1;
        priorities.push(job.priority);
      }
      job.row.s = i + 1;
    }
    last = job;
  }
  return { queues, priorities };
}

/** The payload is JSON text already; it is put in its place as it is instead of being escaped and parsed again. */
function toJson(jobs: NewJob[]): string {
  let text = '[';
  for (const { row } of jobs) {
    const { p, ...rest } = row;
    text += `${text.length > 1 ? ',' : ''}${JSON.stringify(rest).slice(0, -1)},"p":${p}}`;
  }
  return `${text}]`;
}

/** An escaped NUL, not an escaped backslash in front of the letters u0000. */
const holdsNul = /(?<!\\)(?:\\\\)*\\u0000/;

/** The job as a claim would have handed it over. */
function packedAs(id: string, { row }: NewJob, created: number): PackedJob {
  const rest = {
    ...(row.t !== 'default' && { tenant: row.t }),
    maxAttempts: row.m,
    ...(row.c !== undefined && { correlation: row.c }),
    ...(row.w !== undefined && { trace: row.w }),
  };
  return [id, row.k, JSON.parse(row.p), created, rest];
}

const streamKey = (queue: string, priority: number | undefined): string => `${priority} ${queue}`;

const isPlainAndDue = ({ plain, row }: NewJob): boolean =>
  plain && row.d === undefined && row.at === undefined;

const queuesOf = (jobs: NewJob[]): Set<string> => new Set(jobs.map((job) => job.queue));

function checkTimes({ delayMs, scheduledAt }: EnqueueOptions): void {
  if (delayMs !== undefined && scheduledAt !== undefined)
    throw new TallymanError('BAD_OPTION', 'give delayMs or scheduledAt, not both');
  if (delayMs !== undefined && (!Number.isFinite(delayMs) || delayMs < 0))
    throw new TallymanError('BAD_OPTION', `delayMs must not be negative, got ${delayMs}`);
  if (scheduledAt !== undefined && Number.isNaN(scheduledAt.getTime()))
    throw new TallymanError('BAD_OPTION', 'scheduledAt is not a date');
}
