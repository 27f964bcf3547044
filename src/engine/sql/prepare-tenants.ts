import type { Queryable } from '../database/database.ts';
import { SqlFunction } from './sql-function.ts';

export const prepareTenantsFunction = new SqlFunction('prepare_tenants', {});

/** Makes the role that acts for one tenant, and gives it what it needs. */
export async function prepareTenants(on: Queryable): Promise<void> {
  await prepareTenantsFunction.rows(on, {});
}
