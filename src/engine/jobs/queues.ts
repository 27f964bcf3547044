import { wakeAfterCommit } from '../database/after-commit.ts';
import type { Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import { hint } from '../sql/hint.ts';
import { requireText } from '../validate.ts';

export interface Queue {
  readonly name: string;
  readonly paused: boolean;
  readonly pausedAt: Date | null;
  /** Fleet-wide limits; null is none. */
  readonly maxRunning: number | null;
  readonly ratePerSecond: number | null;
  readonly rateBurst: number | null;
  readonly ready: number;
  readonly running: number;
  /** Delayed, or waiting for a retry. */
  readonly waiting: number;
  readonly oldestReadyAt: Date | null;
}

export interface QueueLimits {
  /** Items of this queue that workers of the whole fleet may hold at once. */
  readonly maxRunning?: number | null;
  /** Starts a second over the whole fleet. */
  readonly ratePerSecond?: number | null;
  /** How many may start at once after a quiet time. Default: one second's worth. */
  readonly rateBurst?: number | null;
}

export class Queues {
  readonly #database: Queryable;

  constructor(database: Queryable) {
    this.#database = database;
  }

  async list(): Promise<readonly Queue[]> {
    const { rows } = await this.#database.query<Queue>(
      `select q.name, q.paused_at is not null as paused, q.paused_at as "pausedAt", q.max_running as "maxRunning",
              q.rate_per_second as "ratePerSecond", q.rate_burst as "rateBurst",
              coalesce(j.ready, 0)::integer as ready, coalesce(j.running, 0)::integer as running,
              coalesce(j.waiting, 0)::integer as waiting, j.oldest as "oldestReadyAt"
         from tallyman.queues q
         left join (select queue,
                           count(*) filter (where status = 'RUNNING') as running,
                           count(*) filter (where status = 'QUEUED' and scheduled_at <= now()) as ready,
                           count(*) filter (where status = 'QUEUED' and scheduled_at > now()) as waiting,
                           min(scheduled_at) filter (where status = 'QUEUED' and scheduled_at <= now()) as oldest
                      from tallyman.live_jobs group by queue) j on j.queue = q.name
        order by q.name`,
    );
    return rows;
  }

  /**
   * Stops claims from it. Running jobs continue. A queue that has no jobs yet is made, so that its first job waits, too; returns
   * whether it was there before.
   */
  async pause(name: string): Promise<boolean> {
    requireText(name, 'queue', 128);
    const { rows } = await this.#database.query<{ isNew: boolean }>(
      `insert into tallyman.queues as q (name, paused_at) values ($1, now())
       on conflict (name) do update set paused_at = coalesce(q.paused_at, now())
       returning q.xmax = 0 as "isNew"`,
      [name],
    );
    return rows[0]?.isNew !== true;
  }

  async resume(name: string): Promise<void> {
    const { rowCount } = await this.#database.query(
      'update tallyman.queues set paused_at = null where name = $1',
      [name],
    );
    if (rowCount === 0) throw new TallymanError('NOT_FOUND', `there is no queue "${name}"`);
    await hint(this.#database, { queues: [name] });
    wakeAfterCommit(this.#database, [{ queue: name }]);
  }

  /** Sets fleet-wide limits. Creates the queue if it does not exist; null removes a limit. */
  async configure(name: string, limits: QueueLimits): Promise<void> {
    requireText(name, 'queue', 128);
    for (const [key, value] of Object.entries(limits))
      if (value !== null && value !== undefined && !(value > 0))
        throw new TallymanError('BAD_OPTION', `${key} must be above zero or null, got ${value}`);
    await this.#database.query(
      `insert into tallyman.queues (name, max_running, rate_per_second, rate_burst) values ($1, $2, $3, $4)
       on conflict (name) do update set
         max_running = case when $5 then excluded.max_running else queues.max_running end,
         rate_per_second = case when $6 then excluded.rate_per_second else queues.rate_per_second end,
         rate_burst = case when $7 then excluded.rate_burst else queues.rate_burst end`,
      [
        name,
        limits.maxRunning ?? null,
        limits.ratePerSecond ?? null,
        limits.rateBurst ?? null,
        limits.maxRunning !== undefined,
        limits.ratePerSecond !== undefined,
        limits.rateBurst !== undefined,
      ],
    );
  }
}
