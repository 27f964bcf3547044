import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { homeTenant } from '../../host/roles.ts';
import type { ServerDependencies } from '../../host/services.ts';

/** One tenant may make a quarter of the queues, but the operator's own may make all: the others need some, too. */
const shareOfQueues = 4;
/** A tenant that has too many jobs is looked at again after this time. */
const lookAgainMs = 5_000;

interface Backlog {
  /** Jobs that this process has taken since it looked. */
  taken: number;
  fullSince: number | undefined;
}

/**
 * Keeps one tenant from filling the tables: it may have `mostJobs` that have not ended, and new queues are made up to
 * `mostQueues` in all. One tenant may make a quarter of those in each process. 0 is no limit.
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
  /** The tenants whose requests named queues that were not there, as far as this process knows. At most `mostQueues`. */
  readonly #madeBy = new Map<string, string>();

  constructor(database: Queryable, limits: { readonly mostJobs: number; readonly mostQueues: number }) {
    this.#database = database;
    this.#mostJobs = limits.mostJobs;
    this.#mostQueues = limits.mostQueues;
  }

  /** Throws BACKLOG_FULL or TOO_MANY_QUEUES. */
  async admit(tenantId: string, jobs: readonly { readonly queue: string }[]): Promise<void> {
    if (this.#mostJobs > 0) await this.#admitJobs(tenantId, jobs.length);
    await this.admitQueues(
      tenantId,
      jobs.map(({ queue }) => queue),
    );
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

  /**
   * Throws TOO_MANY_QUEUES if one of these would be made and may not be. What it lets through counts from then on, whether or not
   * it is made. In a transaction pass it as `on`: a request that waits for a second connection may wait forever.
   */
  async admitQueues(
    tenantId: string,
    queues: Iterable<string>,
    on: Queryable = this.#database,
  ): Promise<void> {
    if (this.#mostQueues === 0) return;
    const wanted = [...new Set(queues)];
    const unknown = () => wanted.filter((queue) => !this.#queues.has(queue) && !this.#madeBy.has(queue));
    if (unknown().length === 0) return;
    const { rows } = await on.query<{ name: string }>('select tallyman.queue_names() as name');
    this.#queues = new Set(rows.map(({ name }) => name));
    const made = unknown();
    if (made.length === 0) return;
    const names = made.slice(0, 3).join(', ');
    const all = new Set([...this.#queues, ...this.#madeBy.keys()]).size;
    if (all + made.length > this.#mostQueues)
      throw new TallymanError(
        'TOO_MANY_QUEUES',
        `there are ${all} queues, and ${names} would be new; use one that is there (server.maxQueues)`,
      );
    const share = Math.max(1, Math.floor(this.#mostQueues / shareOfQueues));
    const own = [...this.#madeBy.values()].filter((each) => each === tenantId).length;
    if (tenantId !== homeTenant && own + made.length > share)
      throw new TallymanError(
        'TOO_MANY_QUEUES',
        `this tenant has made ${own} queues of at most ${share}, and ${names} would be new; use one that is there (server.maxQueues)`,
      );
    for (const queue of made) this.#madeBy.set(queue, tenantId);
  }
}

const limits = new WeakMap<ServerDependencies, TenantLimits>();

/** One for all requests of a server: jobs and schedules count together. */
export function limitsOf(host: ServerDependencies): TenantLimits {
  const known = limits.get(host);
  if (known) return known;
  const made = new TenantLimits(host.tallyman.database, {
    mostJobs: host.config['server.tenantJobs'],
    mostQueues: host.config['server.maxQueues'],
  });
  limits.set(host, made);
  return made;
}
