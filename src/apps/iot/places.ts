import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireText } from '../../engine/validate.ts';

export interface Location {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string;
}

export interface Device {
  readonly id: string;
  readonly tenantId: string;
  /** As in the topics it publishes on. */
  readonly serial: string;
  readonly name: string;
  readonly locationId: string | null;
  readonly role: string;
}

export interface DeviceSettings {
  readonly tenantId: string;
  readonly serial: string;
  /** Default: its serial. */
  readonly name?: string;
  /** Default: not mounted anywhere. */
  readonly locationId?: string | null;
  /** Such as `dock-door`, `return-door`, `camera`. Default `reader`. */
  readonly role?: string;
}

const deviceColumns = `id, tenant_id as "tenantId", serial, name, location_id as "locationId", role`;

/** Creates the location, or returns the existing one of that name. */
export async function putLocation(on: Queryable, tenantId: string, name: string): Promise<Location> {
  requireText(name, 'the name of a location', 256);
  const { rows } = await on.query<Location>(
    `insert into iot.locations as l (tenant_id, name) values ($1, $2)
     on conflict (tenant_id, name) do update set name = l.name
     returning id, tenant_id as "tenantId", name`,
    [tenantId, name],
  );
  return rows[0] as Location;
}

/** Creates or changes the device. Processes that keep devices in memory get a notification. */
export async function putDevice(on: Queryable, settings: DeviceSettings): Promise<Device> {
  const { tenantId, name, locationId = null, role = 'reader' } = settings;
  requireText(settings.serial, 'the serial of a device', 256);
  requireText(role, 'the role of a device', 64);
  const serial = settings.serial.trim();
  if (locationId !== null) await requireLocation(on, tenantId, locationId);
  const { rows } = await on.query<Device>(
    `insert into iot.devices (tenant_id, serial, name, location_id, role) values ($1, $2, $3, $4, $5)
     on conflict (tenant_id, serial) do update
        set name = excluded.name, location_id = excluded.location_id, role = excluded.role, updated_at = now()
     returning ${deviceColumns}`,
    [tenantId, serial, name ?? serial, locationId, role],
  );
  return rows[0] as Device;
}

/** A device of one tenant must not be at a location of another. */
async function requireLocation(on: Queryable, tenantId: string, id: string): Promise<void> {
  const { rows } = await on.query('select 1 from iot.locations where tenant_id = $1 and id::text = $2', [
    tenantId,
    id,
  ]);
  if (rows.length === 0) throw new TallymanError('NOT_FOUND', `there is no location ${id}`);
}

export async function listLocations(on: Queryable, tenantId: string): Promise<Location[]> {
  const { rows } = await on.query<Location>(
    `select id, tenant_id as "tenantId", name from iot.locations where tenant_id = $1 order by name`,
    [tenantId],
  );
  return rows;
}

export async function listDevices(on: Queryable, tenantId: string): Promise<Device[]> {
  const { rows } = await on.query<Device>(
    `select ${deviceColumns} from iot.devices where tenant_id = $1 order by serial`,
    [tenantId],
  );
  return rows;
}
