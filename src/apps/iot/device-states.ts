/** Devices with what they last said, as users see them. */
import type { Queryable } from '../../engine/database/database.ts';
import { type Device, noDevice } from './places.ts';

export interface DeviceState {
  readonly lastSeenAt: Date | null;
  readonly lastReadAt: Date | null;
  readonly lastHeartbeatAt: Date | null;
  /** Its clock minus ours; positive: it is ahead. */
  readonly clockSkewMs: number | null;
  readonly errors: number;
  readonly warnings: number;
  readonly lastError: string | null;
  readonly lastErrorAt: Date | null;
  /** Reads of tags that the configuration ignores. */
  readonly ignoredReads: number;
  /** The last known value of each thing that it reported. */
  readonly state: Readonly<Record<string, string | number>>;
}

export type KnownDevice = Device & DeviceState;

const stateColumns = `s.last_seen_at as "lastSeenAt", s.last_read_at as "lastReadAt", s.last_heartbeat_at as "lastHeartbeatAt",
  s.clock_skew_ms::float8 as "clockSkewMs", coalesce(s.errors, 0)::float8 as errors, coalesce(s.warnings, 0)::float8 as warnings,
  s.last_error as "lastError", s.last_error_at as "lastErrorAt", coalesce(s.ignored_reads, 0)::float8 as "ignoredReads",
  coalesce(s.state, '{}') as state`;

const devices = `select d.id, d.tenant_id as "tenantId", d.serial, d.name, d.location_id as "locationId", d.role, ${stateColumns}
  from iot.devices d left join iot.device_states s on s.tenant_id = d.tenant_id and s.serial = d.serial`;

/** By serial; all, or those of some roles. */
export async function knownDevices(
  on: Queryable,
  tenantId: string,
  roles?: readonly string[],
): Promise<KnownDevice[]> {
  const { rows } = await on.query<KnownDevice>(
    `${devices} where d.tenant_id = $1 and ($2::text[] is null or d.role = any ($2)) order by d.serial`,
    [tenantId, roles ?? null],
  );
  return rows;
}

export async function requireDevice(on: Queryable, tenantId: string, serial: string): Promise<KnownDevice> {
  const { rows } = await on.query<KnownDevice>(`${devices} where d.tenant_id = $1 and d.serial = $2`, [
    tenantId,
    serial.trim(),
  ]);
  if (!rows[0]) throw noDevice(serial);
  return rows[0];
}

/** A device that is registered, or has sent something. */
export async function requireHeardOf(on: Queryable, tenantId: string, serial: string): Promise<void> {
  const { rows } = await on.query(
    `select 1 from iot.devices where tenant_id = $1 and serial = $2
     union all select 1 from iot.device_states where tenant_id = $1 and serial = $2`,
    [tenantId, serial.trim()],
  );
  if (rows.length === 0) throw noDevice(serial);
}

export interface UnregisteredDevice {
  readonly serial: string;
  readonly lastSeenAt: Date;
}

/** Devices that sent messages and are not registered: their reads wait. The last heard of first. */
export async function unregisteredDevices(on: Queryable, tenantId: string): Promise<UnregisteredDevice[]> {
  const { rows } = await on.query<UnregisteredDevice>(
    `select s.serial, s.last_seen_at as "lastSeenAt" from iot.device_states s
      where s.tenant_id = $1
        and not exists (select 1 from iot.devices d where d.tenant_id = s.tenant_id and d.serial = s.serial)
      order by s.last_seen_at desc limit 100`,
    [tenantId],
  );
  return rows;
}
