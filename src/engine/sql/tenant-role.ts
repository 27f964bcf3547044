import { SqlFunction } from './sql-function.ts';

export const tenantRoleFunction = new SqlFunction('tenant_role', {});

/** Takes the role for tenants where only the transaction is known, and not the database that it belongs to. */
export const takeTenantRole = `select set_config('role', tallyman.tenant_role(), true)`;
