import type { Queryable } from '../database/database.ts';
import { SqlFunction } from './sql-function.ts';

export const keepsSharedTenantRoleFunction = new SqlFunction('keeps_shared_tenant_role', {});

/** True where the role that all databases of a server shared until release 0.2 has rights in this one. */
export const keepsSharedTenantRole = (on: Queryable): Promise<boolean> =>
  keepsSharedTenantRoleFunction.value(on, {});

/** What takes these rights away, for a person to run. */
export const retireSharedTenantRole = 'select tallyman.retire_shared_tenant_role()';
