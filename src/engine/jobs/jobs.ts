import type { Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import {
  cutToBytes,
  type Measured,
  type Page,
  type PageRequest,
  pageOf,
  pageRequest,
  withinPageBytes,
} from '../paging.ts';
import { cancel } from '../sql/cancel.ts';
import { retry } from '../sql/retry.ts';
import { requireId } from '../validate.ts';
import { wakeForJobs } from './hints-of-jobs.ts';
import type { Priority } from './kind.ts';

export type JobStatus =
  | 'QUEUED'
  | 'RUNNING'
  | 'SUCCEEDED'
  | 'FAILED'
  | 'CANCELLED'
  | 'SUPERSEDED'
  | 'DEAD_LETTER';

export const jobStatuses: readonly JobStatus[] = [
  'QUEUED',
  'RUNNING',
  'SUCCEEDED',
  'FAILED',
  'CANCELLED',
  'SUPERSEDED',
  'DEAD_LETTER',
];

export interface Job {
  readonly id: string;
  readonly status: JobStatus;
  readonly queue: string;
  readonly kind: string;
  readonly priority: Priority;
  readonly tenantId: string;
  readonly lane: string | null;
  readonly seq: string | null;
  readonly payload: unknown;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly correlationId: string;
  readonly dedupeKey: string | null;
  readonly createdAt: Date;
  readonly scheduledAt: Date;
  readonly finishedAt: Date | null;
  readonly lastError: JobError | null;
}

export interface JobError {
  readonly code: string;
  readonly message: string;
  readonly stack: string | null;
  readonly attempt: number;
  readonly worker: string | null;
  readonly at: string;
  readonly first_failed_at: string;
  readonly redrives: number;
}

export interface JobFilter {
  readonly status?: JobStatus;
  readonly queue?: string;
  readonly kind?: string;
  readonly tenantId?: string;
  readonly lane?: string;
  readonly correlationId?: string;
}

// One shape for the three places a job can be in. A job is in one of them at a time.
const columns = `id, queue, kind, priority, tenant_id as "tenantId", lane, seq, payload, attempts,
  max_attempts as "maxAttempts", coalesce(correlation_id, id::text) as "correlationId", dedupe_key as "dedupeKey",
  created_at as "createdAt", scheduled_at as "scheduledAt", last_error as "lastError"`;
const live = `select status, ${columns}, null::timestamptz as "finishedAt" from tallyman.live_jobs`;
const finished = `select status, ${columns}, finished_at as "finishedAt"
  from (select h.*, s.queue, s.priority from tallyman.history h join tallyman.streams s on s.id = h.stream) h`;
const dead = `select 'DEAD_LETTER' as status, ${columns.replace('scheduled_at as', 'created_at as')},
  last_failed_at as "finishedAt" from tallyman.dead_letters where source = 'job'`;

/** Reads jobs in any state, and cancels or retries them. */
export class Jobs {
  readonly #database: Queryable;
  readonly #keepMs: number;

  constructor(database: Queryable, keepMs: number) {
    this.#database = database;
    this.#keepMs = keepMs;
  }

  /**
   * @example
   * const job = await tallyman.jobs.get(id);
   * console.log(job?.status);
   */
  async get(id: string): Promise<Job | undefined> {
    requireId(id);
    const { rows } = await this.#database.query<Job>(
      `select * from (${live} where id = $1) l
       union all select * from (${dead} and id = $1) d
       union all select * from (${finished} where id = $1) h limit 1`,
      [id],
    );
    return rows[0];
  }

  /** Newest first. */
  async list(filter: JobFilter = {}, page: PageRequest = {}): Promise<Page<Job>> {
    const { limit, fetchLimit, cursor } = pageRequest(page);
    const values: unknown[] = [cursor, fetchLimit];
    const conditions = ['($1::bigint is null or id < $1::bigint)'];
    const equal = (column: string, value: unknown): void => {
      if (value !== undefined) conditions.push(`${column} = $${values.push(value)}`);
    };
    equal('queue', filter.queue);
    equal('kind', filter.kind);
    equal('tenant_id', filter.tenantId);
    equal('lane', filter.lane);
    if (filter.correlationId !== undefined)
      conditions.push(`coalesce(correlation_id, id::text) = $${values.push(filter.correlationId)}`);
    const where = conditions.join(' and ');
    const newest = `order by id desc limit $2`;
    const { status } = filter;
    const parts: string[] = [];
    if (!status || status === 'QUEUED' || status === 'RUNNING')
      parts.push(`(${live} where ${where}${status ? ` and status = '${status}'` : ''} ${newest})`);
    if (!status || status === 'DEAD_LETTER') parts.push(`(${dead} and ${where} ${newest})`);
    if (!status || ['SUCCEEDED', 'FAILED', 'CANCELLED', 'SUPERSEDED'].includes(status))
      parts.push(`(${finished} where ${where}${status ? ` and status = '${status}'` : ''} ${newest})`);
    if (parts.length === 0)
      throw new TallymanError(
        'BAD_OPTION',
        `status must be one of ${jobStatuses.join(', ')}; got "${status}"`,
      );
    const { rows } = await this.#database.query<Measured<Job>>(
      withinPageBytes(
        `select * from (${parts.join(' union all ')}) parts order by id desc limit $2`,
        'id desc',
      ),
      values,
    );
    const kept = cutToBytes(rows);
    return pageOf(kept.rows, limit, kept);
  }

  /** Ends a job that has not ended, also a running one: its signal fires and its result is discarded. */
  async cancel(id: string, reason = 'cancelled by a person'): Promise<void> {
    requireId(id);
    const isDone = await cancel(this.#database, { id, reason, keepMs: this.#keepMs });
    if (!isDone) throw await this.#notPossible(id, 'cancelled');
  }

  /** Runs a job again: a failed, cancelled or dead one from the start, a waiting one now instead of later. */
  async retry(id: string): Promise<void> {
    requireId(id);
    if (!(await retry(this.#database, { id }))) throw await this.#notPossible(id, 'retried');
    await wakeForJobs(this.#database, [id]);
  }

  /** How many jobs there are in each state. Cheap enough for a screen, not for a loop. */
  async counts(): Promise<Readonly<Record<JobStatus, number>>> {
    const { rows } = await this.#database.query<{ status: JobStatus; n: string }>(
      `select status, count(*) as n from tallyman.live_jobs group by 1
       union all select status, count(*) from tallyman.history group by 1
       union all select 'DEAD_LETTER', count(*) from tallyman.dead_letters`,
    );
    const counts = Object.fromEntries(jobStatuses.map((status) => [status, 0])) as Record<JobStatus, number>;
    for (const { status, n } of rows) counts[status] = Number(n);
    return counts;
  }

  async #notPossible(id: string, what: string): Promise<TallymanError> {
    const job = await this.get(id);
    if (!job) return new TallymanError('NOT_FOUND', `there is no job ${id}`);
    return new TallymanError('BAD_STATE', `job ${id} is ${job.status} and cannot be ${what}`);
  }
}
