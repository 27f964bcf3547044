import type { RfidConfig } from '../config.ts';
import { httpWarehouse, type WarehouseSystem } from './index.ts';

/** The configured warehouse system; undefined without one. */
export function warehouseOf(
  config: RfidConfig,
): { readonly system: WarehouseSystem; readonly tenantId: string; readonly cron: string } | undefined {
  const url = config['wms.url'];
  if (url === null) return undefined;
  const authorization = config['wms.authorization'];
  return {
    system: httpWarehouse({ url, ...(authorization !== null && { headers: { authorization } }) }),
    tenantId: config['wms.tenantId'],
    cron: config['wms.cron'],
  };
}
