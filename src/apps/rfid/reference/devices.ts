import type { Queryable } from '../../../engine/database/database.ts';

/** A reader, with the fields that baskets need. */
export interface Device {
  readonly serial: string;
  readonly locationId: string | null;
  readonly role: string;
}

export type DeviceOf = (tenantId: string, serial: string) => Device | undefined;

/** Where devices are looked up. */
export interface DeviceDirectory {
  /** The known devices of these reads, as of now. */
  lookup(reads: readonly { readonly tenantId: string; readonly deviceId: string }[]): Promise<DeviceOf>;
}

export const deviceKey = (tenantId: string, serial: string): string => `${tenantId}\n${serial}`;

/** All devices of all tenants: a plant has hundreds. Read from `iot`, which is never written to from here. */
export async function loadDevices(on: Queryable): Promise<Map<string, Device>> {
  const { rows } = await on.query<Device & { readonly tenantId: string }>(
    'select tenant_id as "tenantId", serial, location_id as "locationId", role from iot.devices',
  );
  return new Map(
    rows.map(({ tenantId, ...device }) => [deviceKey(tenantId, device.serial), device] as const),
  );
}
