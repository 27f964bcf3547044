import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';

/** A tenant that has too many jobs is looked at again after this time. */
const lookAgainMs = 5_000;

interface Backlog {
  /** Jobs that this process has taken since it looked. */
  taken: number;
  fullSince: number | undefined;
}

/**
 * Keeps one tenant from filling the tables: it may have `mostJobs` that have not ended, and new queues are made up to
 * `mostQueues` in all. 0 is no limit.
 *
 * To count jobs takes a look at all of them. So each process counts once a tenant has sent it a tenth of the limit, and the limit is
 * held within a tenth for each process.
 */
export class TenantLimits {
  readonly #database: Queryable;
  readonly #mostJobs: number;
  readonly #mostQueues: number;
  readonly #backlogs = new Map<string, Backlog>();
  #queues: ReadonlySet<string> = new Set();

  constructor(database: Queryable, limits: { readonly mostJobs: number; readonly mostQueues: number }) {
    this.#database = database;
    this.#mostJobs = limits.mostJobs;
    this.#mostQueues = limits.mostQueues;
  }

  /** Throws BACKLOG_FULL or TOO_MANY_QUEUES. */
  async admit(tenantId: string, jobs: readonly { readonly queue: string }[]): Promise<void> {
    if (this.#mostJobs > 0) await this.#admitJobs(tenantId, jobs.length);
    if (this.#mostQueues > 0) await this.#admitQueues(jobs);
  }

  async #admitJobs(tenantId: string, jobs: number): Promise<void> {
    const backlog = this.#backlogs.get(tenantId) ?? { taken: 0, fullSince: undefined };
    this.#backlogs.set(tenantId, backlog);
    backlog.taken += jobs;
    const { fullSince } = backlog;
    const isDue =
      fullSince === undefined
        ? backlog.taken >= this.#mostJobs / 10
        : performance.now() - fullSince >= lookAgainMs;
    if (isDue) {
      // Before the answer comes: others need not look, too.
      backlog.taken = 0;
      if (fullSince !== undefined) backlog.fullSince = performance.now();
      backlog.fullSince = (await this.#isFull(tenantId)) ? performance.now() : undefined;
    }
    if (backlog.fullSince !== undefined)
      throw new TallymanError(
        'BACKLOG_FULL',
        `this tenant has ${this.#mostJobs} jobs that have not ended; let workers catch up (server.tenantJobs)`,
      );
  }

  async #isFull(tenantId: string): Promise<boolean> {
    const { rows } = await this.#database.query<{ isFull: boolean }>(
      `select tallyman.has_jobs($1, $2) as "isFull"`,
      [tenantId, this.#mostJobs],
    );
    return rows[0]?.isFull ?? false;
  }

  async #admitQueues(jobs: readonly { readonly queue: string }[]): Promise<void> {
    const unknown = () => new Set(jobs.map(({ queue }) => queue).filter((queue) => !this.#queues.has(queue)));
    if (unknown().size === 0) return;
    const { rows } = await this.#database.query<{ name: string }>('select tallyman.queue_names() as name');
    this.#queues = new Set(rows.map(({ name }) => name));
    const made = unknown();
    if (made.size > 0 && this.#queues.size + made.size > this.#mostQueues)
      throw new TallymanError(
        'TOO_MANY_QUEUES',
        `there are ${this.#queues.size} queues, and ${[...made].slice(0, 3).join(', ')} would be new; use one that is there (server.maxQueues)`,
      );
  }
}
