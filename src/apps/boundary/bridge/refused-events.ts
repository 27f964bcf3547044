/**
 * Events that matched a rule but could not become a fact. They are kept with the reason until somebody retries them by the
 * present rules, or drops them.
 */
import { z } from 'zod';
import type { Database, Queryable } from '../../../engine/database/database.ts';
import { TenantDatabase } from '../../../engine/database/tenant.ts';
import type { Page } from '../../../engine/paging.ts';
import { BoundaryError } from '../domain/errors.ts';
import { type EventRow, type EventRule, factOfEvent, matchesType } from '../domain/event-rules.ts';
import { factLimits } from '../domain/fact.ts';
import { localCaller, type NodeParts } from '../node.ts';
import type { Settings } from '../settings.ts';

export interface RefusedEvent {
  /** The public id of the event. */
  readonly event: string;
  readonly type: string;
  readonly to: string;
  readonly predicate: string;
  /** Stable: `too_large`, `invalid_field` … */
  readonly reason: string;
  /** For people. */
  readonly message: string;
  readonly refusedAt: Date;
}

/** All given filters must match. */
export interface WhichEvents {
  readonly event?: string;
  readonly to?: string;
  readonly reason?: string;
}

const utc = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/** An `EventRow` of table `v`. */
export const eventColumns = `v.id as position, tallyman_events.event_id(v.id, v.event_key) as id, v.event_type as type,
                    v.aggregate_type as "aggregateType", v.aggregate_id as "aggregateId",
                    ${utc('v.occurred_at')} as "occurredAt", ${utc('v.created_at')} as "createdAt",
                    case when octet_length(v.payload::text) <= ${factLimits.objectBytes} then v.payload::text end as payload`;

/**
 * Several rules may have one zone and predicate, and all of them may refuse one event: the first reason is kept. A retry tries
 * all of these rules.
 */
export async function noteRefused(
  on: Queryable,
  { tenantId, to }: { readonly tenantId: string; readonly to: string },
  refused: readonly {
    readonly event: string;
    readonly type: string;
    readonly predicate: string;
    readonly error: Error;
  }[],
): Promise<void> {
  await on.query(
    `insert into boundary.refused_events as r (tenant_id, to_zone, event_id, predicate, event_type, reason, message)
     select distinct on (e.event_id, e.predicate) $1, $2, e.event_id, e.predicate, e.event_type, e.reason, e.message
       from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) with ordinality
         as e (event_id, predicate, event_type, reason, message, n)
      order by e.event_id, e.predicate, e.n
     on conflict (tenant_id, to_zone, event_id, predicate)
     do update set event_type = excluded.event_type, reason = excluded.reason, message = excluded.message, refused_at = now()`,
    [
      tenantId,
      to,
      refused.map(({ event }) => event),
      refused.map(({ predicate }) => predicate),
      refused.map(({ type }) => type),
      refused.map(({ error }) => (error instanceof BoundaryError ? error.reason : 'not_storable')),
      refused.map(({ error }) => error.message),
    ],
  );
}

/** How many there are, by the zone that they should have gone to. Relies on refused_events_pkey. */
export async function refusedEvents(
  database: Database,
  tenantId: string,
): Promise<ReadonlyMap<string, number>> {
  const { rows } = await new TenantDatabase(database, tenantId).query<{ zone: string; count: number }>(
    'select to_zone as zone, count(*)::float8 as count from boundary.refused_events where tenant_id = $1 group by to_zone',
    [tenantId],
  );
  return new Map(rows.map(({ zone, count }) => [zone, count]));
}

const chosen = `tenant_id = $1 and ($2::text is null or event_id = $2) and ($3::text is null or to_zone = $3)
            and ($4::text is null or reason = $4)`;

const columns = `event_id as event, event_type as type, to_zone as "to", predicate, reason, message, refused_at as "refusedAt"`;
const longestFirst = 'refused_at, event_id, to_zone, predicate';

/** Longest refused first. Relies on refused_events_pkey. */
export async function listRefused(
  database: Database,
  tenantId: string,
  { event, to, reason }: WhichEvents,
): Promise<RefusedEvent[]> {
  const { rows } = await new TenantDatabase(database, tenantId).query<RefusedEvent>(
    `select ${columns} from boundary.refused_events where ${chosen} order by ${longestFirst}`,
    [tenantId, event ?? null, to ?? null, reason ?? null],
  );
  return rows;
}

/** What the last one of a page is known by: its place in the order stays, also if it is gone by the next page. */
const place = z.tuple([z.string(), z.string(), z.string(), z.string()]);

/** The same, a page at a time. Undefined: the cursor is none of this list. */
export async function refusedPage(
  database: Database,
  tenantId: string,
  { event, to, reason }: WhichEvents,
  { limit, cursor }: { readonly limit: number; readonly cursor?: string },
): Promise<Page<RefusedEvent> | undefined> {
  const after = cursor === undefined ? undefined : placeIn(cursor);
  if (cursor !== undefined && !after) return undefined;
  const { rows } = await new TenantDatabase(database, tenantId).query<RefusedEvent & { at: string }>(
    `select ${columns}, ${utc('refused_at')} as at from boundary.refused_events
      where ${chosen} and ($5::timestamptz is null or (${longestFirst}) > ($5, $6, $7, $8))
      order by ${longestFirst} limit $9`,
    [
      ...[tenantId, event ?? null, to ?? null, reason ?? null],
      ...(after ?? [null, null, null, null]),
      limit + 1,
    ],
  );
  const items = rows.slice(0, limit).map(({ at: _, ...entry }) => entry);
  const last = rows.length > limit ? rows[limit - 1] : undefined;
  const next = last && [last.at, last.event, last.to, last.predicate];
  return { items, nextCursor: next ? Buffer.from(JSON.stringify(next)).toString('base64url') : null };
}

function placeIn(cursor: string): z.infer<typeof place> | undefined {
  try {
    const found = place.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8')));
    return Number.isNaN(Date.parse(found[0])) ? undefined : found;
  } catch {
    return undefined;
  }
}

/** Gives up on them: they are never facts. Returns how many there were. */
export async function dropRefused(
  database: Database,
  tenantId: string,
  { event, to, reason }: WhichEvents,
): Promise<number> {
  const { rowCount } = await new TenantDatabase(database, tenantId).query(
    `delete from boundary.refused_events where ${chosen}`,
    [tenantId, event ?? null, to ?? null, reason ?? null],
  );
  return rowCount ?? 0;
}

interface Parts extends Pick<NodeParts, 'database' | 'intake'> {
  readonly settings: Pick<Settings, 'zone' | 'sendsTo' | 'tenantId' | 'eventRules'>;
}

export interface Retried {
  /** That are facts now. */
  readonly appended: number;
  /** That cannot be facts by the present rules either, with the reason of this time. */
  readonly refused: readonly RefusedEvent[];
}

/**
 * Appends them by the present rules, behind what their streams have by now. The fact is durable before the note goes; should the
 * process die in between, the same again gives the same message id, and the fact is there. Throws if a stream cannot
 * take one now: those before it are done.
 */
export async function retryRefused(parts: Parts, which: WhichEvents): Promise<Retried> {
  const { database, settings } = parts;
  const { tenantId } = settings;
  const on = new TenantDatabase(database, tenantId);
  const refused: RefusedEvent[] = [];
  let appended = 0;
  for (const entry of await listRefused(database, tenantId, which)) {
    const error = await retryOne(parts, entry);
    if (error) {
      await noteRefused(on, { tenantId, to: entry.to }, [{ ...entry, error }]);
      refused.push({ ...entry, reason: error.reason, message: error.message });
    } else {
      await on.query(
        'delete from boundary.refused_events where tenant_id = $1 and to_zone = $2 and event_id = $3 and predicate = $4',
        [tenantId, entry.to, entry.event, entry.predicate],
      );
      appended += 1;
    }
  }
  return { appended, refused };
}

/** Returns why it can never be a fact. */
async function retryOne(
  { database, intake, settings }: Parts,
  { event: id, to, predicate, type }: RefusedEvent,
): Promise<BoundaryError | undefined> {
  const event = await eventOf(database, settings.tenantId, id);
  if (!event) return gone(id);
  const rules = settings.eventRules.filter(
    (rule) => rule.to === to && rule.predicate === predicate && matchesType(rule, event.type),
  );
  if (rules.length === 0) return withoutRule(type, to, predicate);
  try {
    const facts = rules.map((rule: EventRule) => factOfEvent(event, rule, settings.zone));
    const refusals = await intake.appendInOrder(localCaller(settings, 'events'), facts);
    const refusal = refusals.find((each) => each !== undefined);
    if (refusal === undefined) return undefined;
    return refusal instanceof BoundaryError
      ? refusal
      : new BoundaryError('INVALID_ARGUMENT', 'not_storable', refusal.message);
  } catch (error) {
    if (error instanceof BoundaryError && error.code === 'INVALID_ARGUMENT') return error;
    throw error;
  }
}

/** Relies on the primary key of the events, or on events_by_key. */
async function eventOf(database: Database, tenantId: string, id: string): Promise<EventRow | undefined> {
  const { rows } = await new TenantDatabase(database, tenantId).query<EventRow>(
    `select ${eventColumns} from tallyman_events.events v
      where v.id = any (tallyman_events.ids_of($2)) and v.tenant_id = $1`,
    [tenantId, id],
  );
  return rows[0];
}

const gone = (id: string): BoundaryError =>
  new BoundaryError('NOT_FOUND', 'event_gone', `event "${id}" was purged: append a fact by hand, or drop it`);

const withoutRule = (type: string, to: string, predicate: string): BoundaryError =>
  new BoundaryError(
    'FAILED_PRECONDITION',
    'no_rule',
    `no rule of boundary.eventsAsFacts makes facts "${predicate}" for zone "${to}" of events "${type}": add one, or drop it`,
  );
