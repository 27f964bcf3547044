import { hash } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';

export type EventLevel = 'info' | 'warning' | 'error';

/** What a device said about itself. */
export interface DeviceEvent {
  readonly tenantId: string;
  readonly deviceId: string;
  readonly type: string;
  readonly level: EventLevel;
  /** UTC with microseconds, as `formatInstant` writes it. */
  readonly occurredAt: string;
  /** False: it had no time of its own, and has the time of its arrival. */
  readonly ownClock: boolean;
  readonly receivedAt: Date;
  readonly isHeartbeat: boolean;
  /** The values that it tells, by name. */
  readonly state: Readonly<Record<string, string | number>>;
  readonly summary: string;
  readonly data: unknown;
}

/** Longer events are kept without their data. */
const longestData = 16 * 1024;

/**
 * Stores what devices said, each event once: last seen, state and errors of each device follow from it. Heartbeats only change
 * the state; the others are kept. Rows are locked in the order of their keys. Relies on device_states_pkey.
 */
export async function storeDeviceEvents(tx: Queryable, events: readonly DeviceEvent[]): Promise<void> {
  if (events.length === 0) return;
  const told = JSON.stringify(events.map(rowOf));
  await tx.query(
    `with told as materialized (
       select * from json_to_recordset($1::json) as e (tenant_id text, serial text, type text, level text, summary text,
         occurred_at timestamptz, received_at timestamptz, heartbeat boolean, state jsonb, data json, fingerprint text)
     ), kept as (
       insert into iot.device_events
         (tenant_id, serial, type, level, summary, occurred_at, received_at, data, fingerprint)
       select e.tenant_id, e.serial, e.type, e.level, e.summary, e.occurred_at, e.received_at, e.data,
              decode(e.fingerprint, 'hex')
         from told e where not e.heartbeat order by e.tenant_id, e.serial, e.occurred_at
       on conflict do nothing
       returning tenant_id, serial, level, summary, occurred_at
     ), counted as (
       select k.tenant_id, k.serial, count(*) filter (where k.level = 'error') as errors,
              count(*) filter (where k.level = 'warning') as warnings,
              (array_agg(k.summary order by k.occurred_at desc) filter (where k.level = 'error'))[1] as last_error,
              max(k.occurred_at) filter (where k.level = 'error') as last_error_at
         from kept k group by 1, 2
     ), merged as (
       select e.tenant_id, e.serial, max(e.received_at) as seen_at,
              max(e.received_at) filter (where e.heartbeat) as heartbeat_at,
              coalesce((select jsonb_object_agg(s.key, s.value order by o.occurred_at)
                          from told o, jsonb_each(o.state) s
                         where o.tenant_id = e.tenant_id and o.serial = e.serial), '{}') as state,
              max(e.occurred_at) filter (where e.state <> '{}') as state_at
         from told e group by 1, 2
     )
     insert into iot.device_states as d (tenant_id, serial, last_seen_at, last_heartbeat_at, state, state_at, errors, warnings,
                                         last_error, last_error_at)
     select m.tenant_id, m.serial, m.seen_at, m.heartbeat_at, m.state, m.state_at, coalesce(c.errors, 0),
            coalesce(c.warnings, 0), c.last_error, c.last_error_at
       from merged m left join counted c using (tenant_id, serial) order by m.tenant_id, m.serial
     on conflict (tenant_id, serial) do update
        set last_seen_at = greatest(d.last_seen_at, excluded.last_seen_at),
            last_heartbeat_at = greatest(d.last_heartbeat_at, excluded.last_heartbeat_at),
            -- What comes again, or late, must not hide what is newer.
            state = case when d.state_at > excluded.state_at then excluded.state || d.state else d.state || excluded.state end,
            state_at = greatest(d.state_at, excluded.state_at),
            errors = d.errors + excluded.errors, warnings = d.warnings + excluded.warnings,
            last_error = case when excluded.last_error_at >= coalesce(d.last_error_at, '-infinity')
                              then excluded.last_error else d.last_error end,
            last_error_at = greatest(d.last_error_at, excluded.last_error_at)`,
    [told],
  );
}

function rowOf(event: DeviceEvent) {
  const data = JSON.stringify(event.data).replaceAll('\\u0000', '\ufffd').toWellFormed();
  return {
    tenant_id: event.tenantId,
    serial: event.deviceId,
    type: event.type,
    level: event.level,
    summary: event.summary,
    occurred_at: event.occurredAt,
    received_at: event.receivedAt.toISOString(),
    heartbeat: event.isHeartbeat,
    state: event.state,
    data: data.length > longestData ? null : JSON.parse(data),
    // One without a time of its own cannot be told from the same event a moment later, and is not meant to.
    fingerprint: hash('sha256', `${event.type}\n${data}`, 'hex'),
  };
}

export interface StoredDeviceEvent {
  readonly id: string;
  readonly serial: string;
  readonly type: string;
  readonly level: EventLevel;
  readonly summary: string;
  readonly occurredAt: Date;
  readonly receivedAt: Date;
}

/** Newest first. Relies on device_events_newest. */
export async function listDeviceEvents(
  on: Queryable,
  tenantId: string,
  serial: string,
  page: PageRequest,
): Promise<Page<StoredDeviceEvent>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<StoredDeviceEvent>(
    `select id, serial, type, level, summary, occurred_at as "occurredAt", received_at as "receivedAt"
       from iot.device_events
      where tenant_id = $1 and serial = $2 and ($3::bigint is null or id < $3) order by id desc limit $4`,
    [tenantId, serial, cursor, fetchLimit],
  );
  return pageOf(rows, limit);
}
