import type { Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import { wakeForJobs } from '../jobs/hints-of-jobs.ts';
import type { JobError } from '../jobs/jobs.ts';
import {
  cutToBytes,
  type Measured,
  type Page,
  type PageRequest,
  pageOf,
  pageRequest,
  withinPageBytes,
} from '../paging.ts';
import { discard } from '../sql/discard.ts';
import { redrive } from '../sql/redrive.ts';
import { redriveMany } from '../sql/redrive-many.ts';
import { requireId } from '../validate.ts';

/** Work that used up its attempts, whatever part of the system it came from. */
export interface DeadLetter {
  readonly id: string;
  /** `job`, or the component that made it a dead letter. */
  readonly source: string;
  readonly queue: string;
  readonly kind: string;
  readonly tenantId: string;
  readonly entityType: string;
  readonly entityId: string;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly redrives: number;
  readonly lane: string | null;
  readonly payload: unknown;
  readonly correlationId: string;
  readonly firstFailedAt: Date;
  readonly lastFailedAt: Date;
  readonly lastError: JobError | null;
}

export interface DeadLetterFilter {
  readonly queue?: string;
  readonly kind?: string;
  readonly tenantId?: string;
  readonly lane?: string;
  readonly errorCode?: string;
  readonly entityType?: string;
  readonly entityId?: string;
  /** A text to be found in the last error's message. */
  readonly search?: string;
}

export interface RedriveOptions {
  /** In a lane: to its head instead of its end. Unblocks a lane that this very job had blocked. */
  readonly toHead?: boolean;
}

export interface BulkOptions {
  /** At most this many. Default: all. */
  readonly limit?: number;
  readonly onProgress?: (done: number) => void;
}

const columns = `id, source, queue, kind, tenant_id as "tenantId", entity_type as "entityType",
  entity_id as "entityId", attempts, max_attempts as "maxAttempts", redrives, lane, payload,
  coalesce(correlation_id, id::text) as "correlationId", first_failed_at as "firstFailedAt",
  last_failed_at as "lastFailedAt", last_error as "lastError"`;

/** Ids redriven or discarded in one transaction, so that a filter that matches a million holds no lock for long. */
const batchSize = 500;

export class DeadLetters {
  readonly #database: Queryable;

  constructor(database: Queryable) {
    this.#database = database;
  }

  async get(id: string): Promise<DeadLetter | undefined> {
    requireId(id);
    const { rows } = await this.#database.query<DeadLetter>(
      `select ${columns} from tallyman.dead_letters where id = $1`,
      [id],
    );
    return rows[0];
  }

  /** Newest first. */
  async list(filter: DeadLetterFilter = {}, page: PageRequest = {}): Promise<Page<DeadLetter>> {
    const { limit, fetchLimit, cursor } = pageRequest(page);
    const { where, values } = conditions(filter);
    const below = `($${values.push(cursor)}::bigint is null or id < $${values.length}::bigint)`;
    const { rows } = await this.#database.query<Measured<DeadLetter>>(
      withinPageBytes(
        `select ${columns} from tallyman.dead_letters where ${where} and ${below}
          order by id desc limit $${values.push(fetchLimit)}`,
        'id desc',
      ),
      values,
    );
    const kept = cutToBytes(rows);
    return pageOf(kept.rows, limit, kept);
  }

  /** Redrives one: it runs again with its attempts at zero, under the same id. */
  async redrive(id: string, options: RedriveOptions = {}): Promise<void> {
    requireId(id);
    if (!(await redrive(this.#database, { id, toHead: options.toHead })))
      throw new TallymanError('NOT_FOUND', `there is no dead letter ${id} that can be redriven`);
    await wakeForJobs(this.#database, [id]);
  }

  /** Redrives everything that the filter matches, oldest first; returns how many. */
  async redriveAll(filter: DeadLetterFilter, options: RedriveOptions & BulkOptions = {}): Promise<number> {
    const { toHead } = options;
    const redriveBatch = async (ids: readonly string[]): Promise<number> => {
      const redriven = await redriveMany(this.#database, { ids, toHead });
      await wakeForJobs(this.#database, ids);
      return redriven;
    };
    return this.#eachBatch(filter, redriveBatch, options);
  }

  /** Deletes dead letters for good. Returns how many there were. */
  async discard(ids: readonly string[]): Promise<number> {
    for (const id of ids) requireId(id);
    return discard(this.#database, { ids });
  }

  async discardAll(filter: DeadLetterFilter, options: BulkOptions = {}): Promise<number> {
    return this.#eachBatch(filter, (ids) => discard(this.#database, { ids }), options);
  }

  /** Only what is there now: a job that dies again while this runs is not taken twice. */
  async #eachBatch(
    filter: DeadLetterFilter,
    work: (ids: readonly string[]) => Promise<number>,
    { limit, onProgress }: BulkOptions,
  ): Promise<number> {
    const { where, values } = conditions(filter);
    const { rows } = await this.#database.query<{ id: string }>(
      `select id from tallyman.dead_letters where ${where} order by id limit $${values.push(limit ?? null)}`,
      values,
    );
    let done = 0;
    for (let i = 0; i < rows.length; i += batchSize) {
      done += await work(rows.slice(i, i + batchSize).map((row) => row.id));
      onProgress?.(done);
    }
    return done;
  }
}

function conditions(filter: DeadLetterFilter): { where: string; values: unknown[] } {
  const values: unknown[] = [];
  const parts = ['true'];
  const equal = (expression: string, value: unknown): void => {
    if (value !== undefined) parts.push(`${expression} = $${values.push(value)}`);
  };
  equal('queue', filter.queue);
  equal('kind', filter.kind);
  equal('tenant_id', filter.tenantId);
  equal('lane', filter.lane);
  equal('entity_type', filter.entityType);
  equal('entity_id', filter.entityId);
  equal(`last_error ->> 'code'`, filter.errorCode);
  if (filter.search !== undefined)
    parts.push(`position(lower($${values.push(filter.search)}) in lower(last_error ->> 'message')) > 0`);
  return { where: parts.join(' and '), values };
}
