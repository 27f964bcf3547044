import type { Queryable } from '../database/database.ts';
import { messageOf, TallymanError } from '../errors.ts';
import { type Kind, requirePriority } from '../jobs/kind.ts';
import type { EnqueueOptions } from '../jobs/new-job.ts';
import { checkPayload } from '../jobs/payload.ts';
import type { Transactor } from '../locks/exclusive.ts';
import { type Logger, silentLogger } from '../logger.ts';
import {
  cutToBytes,
  type Measured,
  type Page,
  type PageRequest,
  pageLimit,
  withinPageBytes,
} from '../paging.ts';
import { enqueue } from '../sql/enqueue.ts';
import { requireText, requireWhole } from '../validate.ts';
import { parseCron } from './cron.ts';

type JobOptions = Pick<EnqueueOptions, 'queue' | 'priority' | 'lane' | 'maxAttempts' | 'latestOnly'>;

export interface NewSchedule<Input = unknown> extends JobOptions {
  readonly name: string;
  /** Five fields, six with seconds first, seven with the year last; or `@hourly`, `@daily` and the like. */
  readonly cron: string;
  /** IANA name. Default `UTC`. */
  readonly timezone?: string;
  /** The definition, or the name of a kind that workers have registered (its payload is then checked by the worker). */
  // biome-ignore lint/suspicious/noExplicitAny: what its schema makes of the payload is the handler's business
  readonly kind: Kind<any, Input> | string;
  readonly payload: NoInfer<Input>;
  /** Default `default`. */
  readonly tenantId?: string;
}

export interface Schedule {
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly kind: string;
  readonly payload: unknown;
  readonly tenantId: string;
  readonly options: JobOptions;
  readonly enabled: boolean;
  readonly nextRunAt: Date;
  readonly lastRunAt: Date | undefined;
  readonly lastJobId: string | undefined;
}

export interface ScheduledRun {
  readonly name: string;
  readonly tenantId: string;
  /** The time it was meant for, which may be long past. */
  readonly dueAt: Date;
  readonly jobId: string;
}

interface Row {
  name: string;
  cron: string;
  timezone: string;
  kind: string;
  payload: string;
  tenant_id: string;
  options: JobOptions;
  enabled: boolean;
  next_run_at: Date;
  last_run_at: Date | null;
  last_job_id: string | null;
}

const columns = `name, cron, timezone, kind, payload::text, tenant_id, options, enabled, next_run_at, last_run_at,
                 last_job_id`;

/**
 * An unchanged cron keeps its next time: a deployment that upserts its schedules again must not skip a due run. Returns no row
 * if the tenant has $9 others; null is no limit. Requests at the same moment may pass the limit by a few.
 */
const upsertSchedule = `
  insert into tallyman.schedules as s (name, cron, timezone, kind, payload, tenant_id, options, next_run_at)
  select $1, $2, $3, $4, $5::json, $6, $7::json, $8::timestamptz
   where $9::integer is null
      or exists (select from tallyman.schedules o where o.tenant_id = $6 and o.name = $1)
      or (select count(*) from (select from tallyman.schedules o where o.tenant_id = $6 limit $9) o) < $9
  on conflict (tenant_id, name) do update
     set cron = excluded.cron, timezone = excluded.timezone, kind = excluded.kind, payload = excluded.payload,
         options = excluded.options,
         next_run_at = case when s.cron = excluded.cron and s.timezone = excluded.timezone
                            then s.next_run_at else excluded.next_run_at end
  returning ${columns}`;

/**
 * Which schedules are due, but for $1, at most $2: tenants take turns, each with what was due first. Schedules are few: a scan
 * of the table is right.
 */
const dueNow = `
  select tenant_id as "tenantId", name
    from (select tenant_id, name, next_run_at,
                 row_number() over (partition by tenant_id order by next_run_at, name) as turn
            from tallyman.schedules
           where enabled and next_run_at <= now() and tenant_id || ':' || name <> all ($1::text[])) due
   order by turn, next_run_at, tenant_id limit $2`;

/** The schedule, if it is still due. A row that another runs just now is skipped, not waited for. */
const lockDue = `
  select ${columns}, now()
    from tallyman.schedules
   where tenant_id = $1 and name = $2 and enabled and next_run_at <= now() for update skip locked`;

/** In one pass. The rest waits for the next one: retention and a stop come in between. */
const mostRuns = 200;
/** Schedules that could not run and are tried again in one pass. */
const mostTriedAgain = 20;

interface ScheduleName {
  readonly tenantId: string;
  readonly name: string;
}

/**
 * Cron schedules (ENG-13): each due time becomes one job, whatever crashes and however many processes run.
 *
 * The next time and the job are written in one transaction, under the lock of the schedule's row; the job's dedupe key
 * names the due time, as a second line. All times are compared with the database's clock.
 *
 * Times that were missed while no process ran become one run, for the earliest of them, not a flood. A handler that must
 * account for each hour reads from a checkpoint what is left to do.
 */
export class Schedules {
  readonly #database: Queryable & Transactor;
  readonly #maxPayloadBytes: number;
  readonly #logger: Logger;
  readonly #maxPerTenant: number;
  /** Schedules that were due and could not run, each with the last report, so that it is not repeated every second. The first one was tried longest ago. */
  readonly #failed = new Map<string, ScheduleName & { readonly problem: string }>();

  constructor(
    database: Queryable & Transactor & { readonly logger?: Logger },
    options: {
      readonly maxPayloadBytes?: number;
      /** Schedules that one tenant may have. Default 0: no limit. */
      readonly maxPerTenant?: number;
    } = {},
  ) {
    this.#database = database;
    this.#logger = database.logger ?? silentLogger;
    this.#maxPayloadBytes = options.maxPayloadBytes ?? 1024 * 1024;
    this.#maxPerTenant = options.maxPerTenant ?? 0;
  }

  /**
   * Makes a schedule, or changes the tenant's one of that name; a paused one stays paused.
   *
   * @example
   * await schedules.upsert({ name: 'nightly', cron: '0 3 * * *', timezone: 'Europe/Berlin', kind: report, payload: {} });
   */
  async upsert<Input>(schedule: NewSchedule<Input>): Promise<Schedule> {
    const { name, cron, timezone = 'UTC', tenantId = 'default' } = schedule;
    requireText(name, 'schedule name', 200);
    requireText(tenantId, 'tenantId', 128);
    const rhythm = parseCron(name, cron, timezone);
    const { kind, text, lane } = await checked(schedule);
    if (Buffer.byteLength(text) > this.#maxPayloadBytes)
      throw new TallymanError(
        'PAYLOAD_TOO_LARGE',
        `payload of schedule "${name}" has ${Buffer.byteLength(text)} bytes; the limit is ${this.#maxPayloadBytes}.`,
      );
    const options = checkOptions({ ...schedule, ...(lane !== undefined && { lane }) });
    const next = rhythm.nextRun(await this.#now());
    if (!next)
      throw new TallymanError(
        'BAD_SCHEDULE',
        `cron "${cron}" of schedule "${name}" names a time that never comes`,
      );
    const values = [name, cron, timezone, kind, text, tenantId, JSON.stringify(options), next];
    const { rows } = await this.#database.query<Row>(upsertSchedule, [...values, this.#maxPerTenant || null]);
    const [row] = rows;
    if (!row)
      throw new TallymanError(
        'TOO_MANY_SCHEDULES',
        `tenant "${tenantId}" has ${this.#maxPerTenant} schedules; remove one before you make "${name}"`,
      );
    return toSchedule(row);
  }

  /** All of them, with their payloads: use `page` where tenants make schedules. */
  async list(): Promise<Schedule[]> {
    const { rows } = await this.#database.query<Row>(
      `select ${columns} from tallyman.schedules order by name, tenant_id`,
    );
    return rows.map(toSchedule);
  }

  /** Of one tenant, in the order of their names; `cursor` is the last name of the page before. A page ends early if payloads are large. */
  async page(tenantId: string, request: PageRequest = {}): Promise<Page<Schedule>> {
    const limit = pageLimit(request);
    const found = await this.#database.query<Measured<Row>>(
      withinPageBytes(
        `select ${columns} from tallyman.schedules
          where tenant_id = $1 and ($2::text is null or name > $2 collate "C")
          order by name collate "C" limit $3`,
        'name collate "C"',
      ),
      [tenantId, request.cursor ?? null, limit + 1],
    );
    const { rows, isCut } = cutToBytes(found.rows);
    const items = rows.slice(0, limit).map(toSchedule);
    return { items, nextCursor: isCut || rows.length > limit ? (items.at(-1)?.name ?? null) : null };
  }

  async get(name: string, tenantId = 'default'): Promise<Schedule | undefined> {
    const { rows } = await this.#database.query<Row>(
      `select ${columns} from tallyman.schedules where name = $1 and tenant_id = $2`,
      [name, tenantId],
    );
    return rows[0] && toSchedule(rows[0]);
  }

  /** The tenants that have a schedule of this name. */
  async tenantsWith(name: string): Promise<string[]> {
    const { rows } = await this.#database.query<{ tenant: string }>(
      'select tenant_id as tenant from tallyman.schedules where name = $1 order by tenant_id',
      [name],
    );
    return rows.map(({ tenant }) => tenant);
  }

  /** Returns whether there was one. Jobs it has enqueued stay. */
  async remove(name: string, tenantId = 'default'): Promise<boolean> {
    const { rowCount } = await this.#database.query(
      'delete from tallyman.schedules where name = $1 and tenant_id = $2',
      [name, tenantId],
    );
    return rowCount === 1;
  }

  /** Returns whether it was running. */
  async pause(name: string, tenantId = 'default'): Promise<boolean> {
    const { rowCount } = await this.#database.query(
      'update tallyman.schedules set enabled = false where name = $1 and tenant_id = $2 and enabled',
      [name, tenantId],
    );
    return rowCount === 1;
  }

  /** Continues with the next time from now: runs that fell into the pause are not made up for. */
  async resume(name: string, tenantId = 'default'): Promise<boolean> {
    return this.#database.transaction(async (tx) => {
      const { rows } = await tx.query<{ cron: string; timezone: string; now: Date }>(
        `select cron, timezone, now() from tallyman.schedules
          where name = $1 and tenant_id = $2 and not enabled for update`,
        [name, tenantId],
      );
      const row = rows[0];
      const next = row && parseCron(name, row.cron, row.timezone).nextRun(row.now);
      if (!next) return false;
      await tx.query(
        'update tallyman.schedules set enabled = true, next_run_at = $3 where name = $1 and tenant_id = $2',
        [name, tenantId, next],
      );
      return true;
    });
  }

  /** Milliseconds until something is due, by the database's clock; negative when it is; undefined when nothing ever is. */
  async dueInMs(): Promise<number | undefined> {
    const { rows } = await this.#database.query<{ ms: number | null }>(
      `select (extract(epoch from min(next_run_at) - now()) * 1000)::float8 as ms from tallyman.schedules where enabled`,
    );
    return rows[0]?.ms ?? undefined;
  }

  /**
   * Enqueues what is due, at most 200 of it; tenants take turns. A schedule that cannot run (nobody knows its kind yet) stays
   * due, is reported once, and holds up no other. Returns early when the signal fires.
   */
  async runDue(on: Transactor = this.#database, signal?: AbortSignal): Promise<ScheduledRun[]> {
    const again = [...this.#failed.values()].slice(0, mostTriedAgain);
    const { rows } = await this.#database.query<{ tenantId: string; name: string }>(dueNow, [
      [...this.#failed.keys()],
      mostRuns,
    ]);
    const runs: ScheduledRun[] = [];
    for (const schedule of [...rows, ...again]) {
      if (signal?.aborted) break;
      const run = await this.#runIfDue(on, schedule);
      if (run) runs.push(run);
    }
    return runs;
  }

  /** Undefined: it cannot run, or it is not due any more, or another process runs it. */
  async #runIfDue(on: Transactor, { tenantId, name }: ScheduleName): Promise<ScheduledRun | undefined> {
    const key = keyOf(tenantId, name);
    const before = this.#failed.get(key);
    this.#failed.delete(key);
    let due: Row | undefined;
    try {
      return await on.transaction(async (tx) => {
        const { rows } = await tx.query<Row & { now: Date }>(lockDue, [tenantId, name]);
        due = rows[0];
        return rows[0] && runOne(tx, rows[0], rows[0].now, this.#maxPayloadBytes);
      });
    } catch (error) {
      if (due === undefined || !isScheduleError(error)) throw error;
      const problem = messageOf(error);
      this.#failed.set(key, { tenantId, name, problem });
      if (before?.problem !== problem)
        this.#logger.warn(
          { schedule: name, tenant: tenantId, problem },
          'a schedule is due and cannot run; it stays due',
        );
      return undefined;
    }
  }

  async #now(): Promise<Date> {
    const { rows } = await this.#database.query<{ now: Date }>('select now()');
    return rows[0]?.now ?? new Date();
  }
}

/** As in `dueNow`. */
const keyOf = (tenantId: string, name: string): string => `${tenantId}:${name}`;

async function runOne(tx: Queryable, row: Row, now: Date, maxPayloadBytes: number): Promise<ScheduledRun> {
  const next = parseCron(row.name, row.cron, row.timezone).nextRun(now);
  const key = `schedule:${row.name}:${row.next_run_at.toISOString()}`;
  const { kind, payload, tenant_id: tenantId, options } = row;
  const args = { ...options, kind, payload, tenantId, dedupeKey: key };
  const jobId = await enqueue(tx, args, { maxPayloadBytes });
  // A cron that has ended (it named a year) has no next time.
  await tx.query(
    `update tallyman.schedules
        set next_run_at = coalesce($2, next_run_at), enabled = $2 is not null, last_run_at = now(), last_job_id = $3
      where name = $1 and tenant_id = $4`,
    [row.name, next, jobId, row.tenant_id],
  );
  return { name: row.name, tenantId: row.tenant_id, dueAt: row.next_run_at, jobId };
}

/** About this schedule, as opposed to the connection: our own errors and those that `tallyman.enqueue` raises. */
const isScheduleError = (error: unknown): boolean =>
  error instanceof TallymanError
    ? error.code === 'BAD_SCHEDULE'
    : /^TM/.test((error as { code?: string }).code ?? '');

/** The payload is the same at every run, so it is checked once, here. The same holds for its lane. */
async function checked<Input>(
  schedule: NewSchedule<Input>,
): Promise<{ kind: string; text: string; lane: string | undefined }> {
  const { name, kind, payload, lane } = schedule;
  if (typeof kind === 'string') {
    requireText(kind, `kind of schedule "${name}"`, 128);
    return { kind, text: JSON.stringify(payload ?? null), lane };
  }
  const found = await checkPayload(kind, payload);
  if (!found.ok)
    throw new TallymanError(
      'VALIDATION_ERROR',
      `payload of schedule "${name}" (kind "${kind.name}") is refused at ${found.path || 'its root'}: ${found.problem}`,
      { details: { schedule: name, kind: kind.name, path: found.path } },
    );
  return { kind: kind.name, text: found.text, lane: lane ?? kind.laneKey?.(found.value) };
}

function checkOptions({ queue, priority, lane, maxAttempts, latestOnly }: JobOptions): JobOptions {
  if (queue !== undefined) requireText(queue, 'queue', 128);
  if (priority !== undefined) requirePriority(priority);
  if (lane !== undefined) requireText(lane, 'lane', 256);
  if (maxAttempts !== undefined) requireWhole(maxAttempts, 'maxAttempts', 1, 1000);
  return {
    ...(queue !== undefined && { queue }),
    ...(priority !== undefined && { priority }),
    ...(lane !== undefined && { lane }),
    ...(maxAttempts !== undefined && { maxAttempts }),
    ...(latestOnly !== undefined && { latestOnly }),
  };
}

const toSchedule = (row: Row): Schedule => ({
  name: row.name,
  cron: row.cron,
  timezone: row.timezone,
  kind: row.kind,
  payload: JSON.parse(row.payload),
  tenantId: row.tenant_id,
  options: row.options,
  enabled: row.enabled,
  nextRunAt: row.next_run_at,
  lastRunAt: row.last_run_at ?? undefined,
  lastJobId: row.last_job_id ?? undefined,
});
