import { createHash } from 'node:crypto';
import pg from 'pg';
import type { Database, Queryable } from '../../engine/database/database.ts';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import type { Transactor } from '../../engine/locks/exclusive.ts';
import { prepareTenants as makeTenantRole } from '../../engine/sql/prepare-tenants.ts';
import { homeTenant } from '../../host/roles.ts';

/** One transaction that sees and writes one tenant's rows, whatever its statements say. */
export class TenantScope implements Queryable, Transactor {
  readonly tenantId: string;
  readonly #tx: pg.ClientBase;
  readonly #prepare: boolean;

  constructor(tenantId: string, tx: pg.ClientBase, { prepare }: { readonly prepare: boolean }) {
    this.tenantId = tenantId;
    this.#tx = tx;
    this.#prepare = prepare;
  }

  /** Prepared, each text once a connection: to plan a look into all days of history takes longer than the look. */
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(text: string, values: unknown[] = []) {
    return this.#tx.query<Row>({ text, values, ...(this.#prepare && { name: statementName(text) }) });
  }

  /** It is one already. */
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T> {
    return work(this);
  }
}

const names = new Map<string, string>();

/** Texts come from this program alone, so there are not many. */
function statementName(text: string): string {
  let name = names.get(text);
  if (name === undefined) {
    name = `tm_${createHash('sha256').update(text).digest('hex').slice(0, 20)}`;
    names.set(text, name);
  }
  return name;
}

/** Row-level security does the rest: see migrations/0002_tenants.sql. */
export function asTenant<T>(
  database: Database,
  tenantId: string,
  work: (scope: TenantScope) => Promise<T>,
): Promise<T> {
  const opening = `begin; set local role tallyman_tenant; set local tallyman.tenant = ${pg.escapeLiteral(tenantId)}`;
  return database.transaction((tx) => work(new TenantScope(tenantId, tx, database)), opening);
}

/** For what all tenants share: a transaction like any other, in the name of the home tenant. */
export function asHome<T>(database: Database, work: (scope: TenantScope) => Promise<T>): Promise<T> {
  return database.transaction((tx) => work(new TenantScope(homeTenant, tx, database)));
}

/** Makes the role that tenants act under, or says who has to. */
export async function prepareTenants(database: Database): Promise<void> {
  try {
    await makeTenantRole(database);
  } catch (error) {
    if ((error as { code?: string }).code !== '42501') throw error;
    throw new TallymanError(
      'MISSING_PRIVILEGES',
      `The database user may not make the role that keeps tenants apart (${messageOf(error)}). Let an administrator run: ` +
        'create role tallyman_tenant nologin; grant tallyman_tenant to <this user>;',
      { cause: error },
    );
  }
}
