import { Batcher } from '../../engine/batching/batcher.ts';
import type { Database, Queryable } from '../../engine/database/database.ts';
import { messageOf } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';
import { callerNetwork } from './caller-network.ts';

export interface AuditEvent {
  readonly tenantId: string;
  readonly actor: string;
  readonly action: string;
  readonly resource: string | null;
  readonly outcome: 'done' | 'refused' | 'failed';
  readonly status: number;
  readonly code: string | null;
  readonly correlationId: string | null;
  readonly address: string | null;
  /** How often, where the same was refused again and again. Default 1. */
  readonly times?: number;
}

export type AuditRow = Required<AuditEvent> & { readonly id: string; readonly at: Date };

const insert = `
  insert into tallyman_server.audit_events
    (tenant_id, actor, action, resource, outcome, status, code, correlation_id, address, times)
  select e."tenantId", e.actor, e.action, e.resource, e.outcome, e.status, e.code, e."correlationId", e.address,
         coalesce(e.times, 1)
    from json_to_recordset($1) as e ("tenantId" text, actor text, action text, resource text, outcome text,
      status integer, code text, "correlationId" text, address text, times integer)`;

/** A write is audited in its own transaction: both are committed, or neither is. */
export async function auditWithin(tx: Queryable, event: AuditEvent): Promise<void> {
  await tx.query(insert, [JSON.stringify([event])]);
}

export async function listAudit(
  database: Queryable,
  filter: { readonly actor?: string; readonly action?: string; readonly outcome?: string },
  page: PageRequest,
): Promise<Page<AuditRow>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await database.query<AuditRow>(
    `select id, tenant_id as "tenantId", at, actor, action, resource, outcome, status, code,
            correlation_id as "correlationId", address, times
       from tallyman_server.audit_events
      where ($1::bigint is null or id < $1::bigint) and ($2::text is null or actor = $2)
        and ($3::text is null or action = $3) and ($4::text is null or outcome = $4)
      order by id desc limit $5`,
    [cursor, filter.actor ?? null, filter.action ?? null, filter.outcome ?? null, fetchLimit],
  );
  return pageOf(rows, limit);
}

/** The most entries in memory: a flood of refused requests must not fill it. */
const mostPending = 10_000;
/** What is refused to the same caller for the same reason is written once, and then counted for this long. */
const countMs = 60_000;
/** The event of refusals that are too many to tell apart: a line for each would be a flood of writes. */
const ofMany = {
  actor: 'several',
  action: 'several',
  resource: null,
  code: null,
  correlationId: null,
  address: null,
} as const;

/** Records refused and failed requests, many per commit, without delaying the answers. */
export class AuditTrail {
  readonly #database: Database;
  readonly #batcher: Batcher<AuditEvent, undefined>;
  /** Refusals like one that was written, by what they have in common; those that found no room are one for each tenant. */
  readonly #counted = new Map<string, { event: AuditEvent; times: number }>();
  #counting: NodeJS.Timeout | undefined;
  #pending = 0;
  #left = 0;

  constructor(database: Database) {
    this.#database = database;
    this.#batcher = new Batcher({
      send: async (events) => {
        await database.query(insert, [JSON.stringify(events)]);
        return events.map(() => undefined);
      },
      maxBatch: 500,
      maxInFlight: 1,
    });
  }

  note(event: AuditEvent): void {
    if (event.outcome !== 'refused' || !this.#isCounted(event)) this.#write(event);
  }

  /** True: it is counted, with others like it of which the first was written, or with all that found no room. */
  #isCounted(event: AuditEvent): boolean {
    const { tenantId, address, actor, action, code } = event;
    // Who has one address of an IPv6 network has all of them, and would be a new caller with each.
    const network = address === null ? null : callerNetwork(address);
    const like = JSON.stringify([tenantId, network, actor, action, code]);
    if (this.#count(like, event)) return true;
    this.#counting ??= setTimeout(() => this.#writeCounted(), countMs).unref();
    if (this.#counted.size < mostPending) {
      this.#counted.set(like, { event, times: 0 });
      return false;
    }
    const others = { ...event, ...ofMany };
    if (!this.#count(tenantId, others)) this.#counted.set(tenantId, { event: others, times: 1 });
    return true;
  }

  /** False: nothing is counted under this name yet. */
  #count(like: string, event: AuditEvent): boolean {
    const counted = this.#counted.get(like);
    if (!counted) return false;
    counted.event = event;
    counted.times += 1;
    return true;
  }

  #writeCounted(): void {
    clearTimeout(this.#counting);
    this.#counting = undefined;
    for (const { event, times } of this.#counted.values()) if (times > 0) this.#write({ ...event, times });
    this.#counted.clear();
  }

  #write(event: AuditEvent): void {
    if (this.#pending >= mostPending) {
      this.#left += 1;
      return;
    }
    this.#pending += 1;
    this.#batcher
      .add(event)
      .catch((error) => {
        this.#database.logger.warn({ ...event, error: messageOf(error) }, 'a refusal could not be audited');
      })
      .finally(() => {
        this.#pending -= 1;
        if (this.#left > 0 && this.#pending === 0) {
          this.#database.logger.warn(
            { events: this.#left },
            'refusals came faster than they could be audited',
          );
          this.#left = 0;
        }
      });
  }

  /** Resolves when all entries so far are written. */
  async flushed(): Promise<void> {
    this.#writeCounted();
    while (this.#pending > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
