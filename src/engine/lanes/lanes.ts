import { wakeAfterCommit } from '../database/after-commit.ts';
import type { Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import type { LanePolicy } from '../jobs/kind.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../paging.ts';
import { unblock } from '../sql/unblock.ts';
import { requireId } from '../validate.ts';

export type LaneState = 'held' | 'ready' | 'waiting' | 'blocked' | 'resting';

export interface Lane {
  readonly id: string;
  readonly tenantId: string;
  readonly queue: string;
  readonly key: string;
  readonly policy: LanePolicy;
  readonly state: LaneState;
  /** Jobs that have not ended. */
  readonly pending: number;
  /** The worker that holds it. */
  readonly worker: string | null;
  /** When its head falls due, while it waits. */
  readonly dueAt: Date | null;
  readonly blockedAt: Date | null;
  /** The dead letter or failed job that blocked it. */
  readonly blockedBy: string | null;
}

export interface LaneFilter {
  readonly queue?: string;
  readonly tenantId?: string;
  readonly state?: LaneState;
  readonly key?: string;
}

const lanes = `
  select l.id, l.tenant_id as "tenantId", l.queue, l.key, g.policy, l.due_at as "dueAt",
         l.blocked_at as "blockedAt", l.blocked_by as "blockedBy", c.worker,
         (select count(*)::integer from tallyman.jobs j where j.lane = l.id) as pending,
         case when l.blocked_at is not null then 'blocked' when c.worker is not null then 'held'
              when l.pos is not null then 'ready' when l.due_at is not null then 'waiting'
              else 'resting' end as state
    from tallyman.lanes l join tallyman.lane_gates g on g.lane = l.id
    left join lateral (select c.worker from tallyman.claims c
                        where c.stream = l.stream and l.pos = any (c.positions) and c.expires_at > now() limit 1) c
      on l.pos is not null`;

export class Lanes {
  readonly #database: Queryable;

  constructor(database: Queryable) {
    this.#database = database;
  }

  async list(filter: LaneFilter = {}, page: PageRequest = {}): Promise<Page<Lane>> {
    const { limit, fetchLimit, cursor } = pageRequest(page);
    const { rows } = await this.#database.query<Lane>(
      `select * from (${lanes}) l
        where ($1::text is null or queue = $1) and ($2::text is null or "tenantId" = $2)
          and ($3::text is null or state = $3) and ($4::text is null or key = $4)
          and ($5::bigint is null or id < $5::bigint)
        order by id desc limit $6`,
      [
        filter.queue ?? null,
        filter.tenantId ?? null,
        filter.state ?? null,
        filter.key ?? null,
        cursor,
        fetchLimit,
      ],
    );
    return pageOf(rows, limit);
  }

  /** By its id. */
  async find(id: string): Promise<Lane | undefined> {
    requireId(id);
    const { rows } = await this.#database.query<Lane>(`${lanes} where l.id = $1`, [id]);
    return rows[0];
  }

  async get(
    key: string,
    where: { readonly queue?: string; readonly tenantId?: string } = {},
  ): Promise<Lane | undefined> {
    const { items } = await this.list({ ...where, key }, { limit: 2 });
    if (items.length > 1)
      throw new TallymanError(
        'AMBIGUOUS',
        `there is more than one lane "${key}"; name its queue and tenant as well`,
      );
    return items[0];
  }

  /** Ends a block: the lane continues after the job that blocked it. */
  async unblock(
    key: string,
    where: { readonly queue?: string; readonly tenantId?: string } = {},
  ): Promise<void> {
    const lane = await this.get(key, where);
    if (!lane) throw new TallymanError('NOT_FOUND', `there is no lane "${key}"`);
    if (!(await unblock(this.#database, { lane: lane.id })))
      throw new TallymanError('BAD_STATE', `lane "${key}" is not blocked, it is ${lane.state}`);
    wakeAfterCommit(this.#database, [{ queue: lane.queue }]);
  }
}
