import type { Database } from '../../engine/database/database.ts';
import { TenantScope } from '../../engine/database/tenant.ts';
import { homeTenant } from '../../host/roles.ts';

/** For what all tenants share: a normal transaction, in the name of the home tenant. */
export function asHome<T>(database: Database, work: (scope: TenantScope) => Promise<T>): Promise<T> {
  return database.transaction((tx) => work(new TenantScope(homeTenant, tx, database)));
}
