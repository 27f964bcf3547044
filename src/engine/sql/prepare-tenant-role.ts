import type { Queryable } from '../database/database.ts';
import { SqlFunction } from './sql-function.ts';

export const prepareTenantRoleFunction = new SqlFunction('prepare_tenant_role', {});

/** Makes the role that acts for one tenant in this database, and gives it what it needs. */
export async function prepareTenantRole(on: Queryable): Promise<void> {
  await prepareTenantRoleFunction.rows(on, {});
}
