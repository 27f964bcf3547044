import type { Queryable } from '../engine/database/database.ts';
import { cutToBytes, type Measured, withinPageBytes } from '../engine/paging.ts';
import { requireId } from '../engine/validate.ts';

export interface DomainEvent {
  /** Its position among all events: the cursor of readers. */
  readonly position: string;
  /** Its public id, also in webhooks. */
  readonly id: string;
  readonly tenantId: string;
  readonly type: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly occurredAt: Date;
  readonly createdAt: Date;
  readonly payload: unknown;
}

export interface EventFilter {
  /** Default: all tenants. */
  readonly tenantId?: string;
  /** `rfid.movement`, `rfid.*` */
  readonly type?: string;
  readonly aggregateType?: string;
  readonly aggregateId?: string;
}

export interface EventPage {
  /** Oldest first. */
  readonly events: readonly DomainEvent[];
  /** Pass it as `after` to continue. It also moves if no event matches the filter. */
  readonly cursor: string;
}

const columns = `v.id as position, tallyman_events.event_id(v.id, v.event_key) as id, v.tenant_id as "tenantId",
            v.event_type as type, v.aggregate_type as "aggregateType", v.aggregate_id as "aggregateId",
            v.occurred_at as "occurredAt", v.created_at as "createdAt", v.payload`;

/** Events examined in one read, whether or not they match the filter: this bounds the time of a read. */
const mostScanned = 10_000;

/**
 * The events after a cursor, oldest first; `0` is the beginning. Two statements: the snapshot of the second must not be
 * older than the result of the first, see functions/read.sql.
 */
export async function readEvents(
  on: Queryable,
  after: string,
  filter: EventFilter = {},
  limit = 50,
): Promise<EventPage> {
  requireId(after);
  const { tenantId, type, aggregateType, aggregateId } = filter;
  const reached = await on.query<{ end: string }>('select tallyman_events.reach($1, $2, $3) as end', [
    after,
    mostScanned,
    tenantId ?? null,
  ]);
  const end = reached.rows[0]?.end ?? after;
  const values: unknown[] = [after, end, limit];
  const conditions = ['v.id > $1 and v.id <= $2'];
  const where = (condition: string, value: unknown): void => {
    if (value !== undefined) conditions.push(`${condition} $${values.push(value)}`);
  };
  // Only the conditions that are needed: so each text gets its own plan, by events_of_tenant or by the primary key.
  where('v.tenant_id =', tenantId);
  if (type?.endsWith('.*')) where('v.event_type ^@', type.slice(0, -1));
  else where('v.event_type =', type);
  where('v.aggregate_type =', aggregateType);
  where('v.aggregate_id =', aggregateId);
  const found = await on.query<Measured<DomainEvent>>(
    withinPageBytes(
      `select ${columns}
         from tallyman_events.events v
        where ${conditions.join(' and ')}
        order by ${tenantId === undefined ? '' : 'v.tenant_id, '}v.id limit $3`,
      'position',
    ),
    values,
  );
  const { rows, isCut } = cutToBytes(found.rows);
  return { events: rows, cursor: isCut || rows.length === limit ? (rows.at(-1)?.position ?? end) : end };
}

/** One event by its public id. An id that an emitter gave is unique in its tenant: without a tenant the newest is returned. */
export async function getEvent(
  on: Queryable,
  id: string,
  { tenantId }: { readonly tenantId?: string } = {},
): Promise<DomainEvent | undefined> {
  const { rows } = await on.query<DomainEvent>(
    `select ${columns} from tallyman_events.events v
      where v.id = any (tallyman_events.ids_of($1)) and ($2::text is null or v.tenant_id = $2)
        and tallyman_events.event_id(v.id, v.event_key) = $1
      order by v.id desc limit 1`,
    [id, tenantId ?? null],
  );
  return rows[0];
}

/** The start position for a reader that wants only events from now on. */
export async function currentPosition(on: Queryable): Promise<string> {
  const { rows } = await on.query<{ at: string }>('select tallyman_events.horizon() as at');
  return rows[0]?.at ?? '0';
}
