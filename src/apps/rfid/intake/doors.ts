import type { Queryable } from '../../../engine/database/database.ts';
import { putDevice, putLocation } from '../../iot/index.ts';

/** Makes readers known, each at a dock door of its own, where they are not yet. */
export async function registerDoors(
  on: Queryable,
  devices: readonly string[],
  tenantId = 'default',
): Promise<void> {
  for (const serial of devices) {
    const location = await putLocation(on, tenantId, `door of ${serial}`);
    await putDevice(on, { tenantId, serial, locationId: location.id, role: 'dock-door' });
  }
}
