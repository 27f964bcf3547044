import type { Queryable } from '../database/database.ts';
import { SqlFunction } from './sql-function.ts';

export const isTenantRoleReadyFunction = new SqlFunction('is_tenant_role_ready', {});

/** True where the role is there, this user may take it, and it may use what tenants share and what is theirs. */
export const isTenantRoleReady = (on: Queryable): Promise<boolean> => isTenantRoleReadyFunction.value(on, {});
