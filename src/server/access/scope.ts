import type { Database, TransactionOptions } from '../../engine/database/database.ts';
import { TenantScope } from '../../engine/database/tenant.ts';
import { homeTenant } from '../../host/roles.ts';

/** For what all tenants share: a normal transaction, in the name of the home tenant. */
export function asHome<T>(
  database: Database,
  work: (scope: TenantScope) => Promise<T>,
  limits: Pick<TransactionOptions, 'statementMs' | 'idleMs'> = {},
): Promise<T> {
  return database.transaction((tx) => work(new TenantScope(homeTenant, tx, database)), limits);
}
