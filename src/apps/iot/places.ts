import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireText } from '../../engine/validate.ts';

export interface Location {
  readonly id: string;
  readonly tenantId: string;
  readonly name: string;
  /** How others know the place, such as `urn:epc:id:sgln:0614141.00777.0`. */
  readonly sgln: string | null;
}

/**
 *   reader        sees baskets somewhere in the plant
 *   dock-door     sees baskets that leave or come in
 *   return-door   a basket that is seen here has come back
 *   camera        sees license plates at a door
 */
export const deviceRoles = ['reader', 'dock-door', 'return-door', 'camera'] as const;
export type DeviceRole = (typeof deviceRoles)[number];

export interface Device {
  readonly id: string;
  readonly tenantId: string;
  /** As in the topics it publishes on. */
  readonly serial: string;
  readonly name: string;
  readonly locationId: string | null;
  /** One of `deviceRoles`; what an older version stored may be another. */
  readonly role: string;
}

export interface DeviceSettings {
  readonly tenantId: string;
  readonly serial: string;
  /** Default: its serial. */
  readonly name?: string;
  /** Default: not mounted anywhere. */
  readonly locationId?: string | null;
  /** Default `reader`. */
  readonly role?: DeviceRole;
}

const locationColumns = `id, tenant_id as "tenantId", name, sgln`;
const deviceColumns = `id, tenant_id as "tenantId", serial, name, location_id as "locationId", role`;

/** Creates the location, or returns the existing one of that name, with its SGLN changed where one is given. */
export async function putLocation(
  on: Queryable,
  tenantId: string,
  name: string,
  sgln?: string | null,
): Promise<Location> {
  requireText(name, 'the name of a location', 256);
  checkSgln(sgln);
  const { rows } = await on.query<Location>(
    `insert into iot.locations as l (tenant_id, name, sgln) values ($1, $2, $3)
     on conflict (tenant_id, name) do update set sgln = case when $4 then excluded.sgln else l.sgln end
     returning ${locationColumns}`,
    [tenantId, name, sgln ?? null, sgln !== undefined],
  );
  return rows[0] as Location;
}

/** Changes what is given. */
export async function changeLocation(
  on: Queryable,
  tenantId: string,
  id: string,
  changes: { readonly name?: string; readonly sgln?: string | null },
): Promise<Location> {
  const { name, sgln } = changes;
  if (name !== undefined) requireText(name, 'the name of a location', 256);
  checkSgln(sgln);
  try {
    const { rows } = await on.query<Location>(
      `update iot.locations
          set name = coalesce($3, name), sgln = case when $5 then $4 else sgln end, updated_at = now()
        where tenant_id = $1 and id::text = $2
       returning ${locationColumns}`,
      [tenantId, id, name ?? null, sgln ?? null, sgln !== undefined],
    );
    return rows[0] ?? noLocation(id);
  } catch (error) {
    if ((error as { code?: string }).code !== '23505') throw error;
    throw new TallymanError('BAD_STATE', `there is another location "${name}"`, { cause: error });
  }
}

/** By its id, or by its name. */
export async function requireLocation(on: Queryable, tenantId: string, idOrName: string): Promise<Location> {
  const { rows } = await on.query<Location>(
    `select ${locationColumns} from iot.locations where tenant_id = $1 and (id::text = $2 or name = $2)
      order by name = $2 desc limit 1`,
    [tenantId, idOrName],
  );
  return rows[0] ?? noLocation(idOrName);
}

function noLocation(idOrName: string): never {
  throw new TallymanError(
    'NOT_FOUND',
    `there is no location ${idOrName}; make it first (tallyman iot locations add, POST /v1/locations)`,
  );
}

/** A GLN with extension as GS1 writes it, or the address of one. */
function checkSgln(sgln: string | null | undefined): void {
  if (sgln === undefined || sgln === null) return;
  requireText(sgln, 'the SGLN of a location', 256);
  const [, company = '', place = ''] = /^urn:epc:id:sgln:(\d+)\.(\d*)\.[^\s.]+$/.exec(sgln) ?? [];
  const isLink = /^https?:$/.test(URL.parse(sgln)?.protocol ?? '');
  if (company.length + place.length !== 12 && !isLink)
    throw new TallymanError(
      'BAD_OPTION',
      `"${sgln}" is no SGLN: expected urn:epc:id:sgln:{company}.{location}.{extension} with 12 digits before the extension, such as urn:epc:id:sgln:0614141.00777.0, or a web address`,
    );
}

/** Creates or replaces the device. Processes that keep devices in memory get a notification. */
export async function putDevice(on: Queryable, settings: DeviceSettings): Promise<Device> {
  const { tenantId, name, locationId = null, role = 'reader' } = settings;
  requireText(settings.serial, 'the serial of a device', 256);
  requireRole(role);
  const serial = settings.serial.trim();
  if (locationId !== null) await requireLocationId(on, tenantId, locationId);
  const { rows } = await on.query<Device>(
    `insert into iot.devices (tenant_id, serial, name, location_id, role) values ($1, $2, $3, $4, $5)
     on conflict (tenant_id, serial) do update
        set name = excluded.name, location_id = excluded.location_id, role = excluded.role, updated_at = now()
     returning ${deviceColumns}`,
    [tenantId, serial, name ?? serial, locationId, role],
  );
  return rows[0] as Device;
}

/** Changes what is given, and leaves the rest. */
export async function changeDevice(
  on: Queryable,
  { tenantId, serial, name, locationId, role }: DeviceSettings,
): Promise<Device> {
  if (name !== undefined) requireText(name, 'the name of a device', 256);
  if (role !== undefined) requireRole(role);
  if (locationId !== undefined && locationId !== null) await requireLocationId(on, tenantId, locationId);
  const { rows } = await on.query<Device>(
    `update iot.devices
        set name = coalesce($3, name), role = coalesce($4, role),
            location_id = case when $6 then $5 else location_id end, updated_at = now()
      where tenant_id = $1 and serial = $2
     returning ${deviceColumns}`,
    [tenantId, serial.trim(), name ?? null, role ?? null, locationId ?? null, locationId !== undefined],
  );
  if (!rows[0]) throw noDevice(serial);
  return rows[0];
}

export const noDevice = (serial: string): TallymanError =>
  new TallymanError(
    'NOT_FOUND',
    `there is no device "${serial}"; make it first (tallyman iot devices add, PUT /v1/devices/{serial})`,
  );

function requireRole(role: string): void {
  if (!deviceRoles.some((known) => known === role))
    throw new TallymanError(
      'BAD_OPTION',
      `the role of a device must be one of ${deviceRoles.join(', ')}, got "${role}"`,
    );
}

/** A device of one tenant must not be at a location of another. */
async function requireLocationId(on: Queryable, tenantId: string, id: string): Promise<void> {
  const { rows } = await on.query('select 1 from iot.locations where tenant_id = $1 and id::text = $2', [
    tenantId,
    id,
  ]);
  if (rows.length === 0) noLocation(id);
}

export async function listLocations(on: Queryable, tenantId: string): Promise<Location[]> {
  const { rows } = await on.query<Location>(
    `select ${locationColumns} from iot.locations where tenant_id = $1 order by name`,
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
