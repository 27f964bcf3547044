/**
 * One tenant's rows and no others: statements run under the role `tallyman_tenant`, with the tenant's name in the
 * transaction, and row-level security does the rest (migrations/0002_tenants.sql). HTTP requests and handlers both work this way.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { messageOf, TallymanError } from '../errors.ts';
import type { Transactor } from '../locks/exclusive.ts';
import { prepareTenants as makeTenantRole } from '../sql/prepare-tenants.ts';
import type { Hint } from '../wakeups/wakeup.ts';
import { type Waker, wakeAfterCommit } from './after-commit.ts';
import type { Database, Queryable, TransactionOptions } from './database.ts';

/** Puts the rest of a transaction under one tenant. Text without parameters, so that it can travel with `begin`. */
export const enterTenant = (tenantId: string): string =>
  `set local role tallyman_tenant; set local tallyman.tenant = ${pg.escapeLiteral(tenantId)}`;

/** Back to the user that connected. */
export const leaveTenant = 'reset role';

/** One transaction that sees and writes one tenant's rows, whatever its statements say. */
export class TenantScope implements Queryable, Transactor, Waker {
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
    const name = this.#prepare ? statementName(text) : undefined;
    return this.#tx.query<Row>({ text, values, ...(name !== undefined && { name }) });
  }

  /** It already is one. */
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T> {
    return work(this);
  }

  wakeAfterCommit(hints: readonly Hint[]): void {
    wakeAfterCommit(this.#tx, hints);
  }
}

/** The database as one tenant sees it: what a handler of a tenant-scoped kind works with. */
export class TenantDatabase implements Queryable, Transactor {
  readonly tenantId: string;
  readonly #database: Database;

  constructor(database: Database, tenantId: string) {
    this.#database = database;
    this.tenantId = tenantId;
  }

  /** One statement in a transaction of its own. Everything goes out together: it costs one round trip. */
  async query<Row extends pg.QueryResultRow = pg.QueryResultRow>(text: string, values: unknown[] = []) {
    const name = this.#database.prepare ? statementName(text) : undefined;
    const result = await this.#database.queryWithin(enterTenant(this.tenantId), { text, values, name });
    return result as pg.QueryResult<Row>;
  }

  transaction<T>(work: (tx: TenantScope) => Promise<T>): Promise<T> {
    return asTenant(this.#database, this.tenantId, work);
  }
}

export function asTenant<T>(
  database: Database,
  tenantId: string,
  work: (scope: TenantScope) => Promise<T>,
  limits: Pick<TransactionOptions, 'statementMs' | 'idleMs'> = {},
): Promise<T> {
  return database.transaction((tx) => work(new TenantScope(tenantId, tx, database)), {
    ...limits,
    opening: enterTenant(tenantId),
  });
}

/**
 * Runs `work` under one tenant, inside a transaction that also does what no tenant may, such as moving a checkpoint.
 * If `work` throws, the transaction must end.
 */
export async function withinTenant<T>(tx: Queryable, tenantId: string, work: () => Promise<T>): Promise<T> {
  await tx.query(enterTenant(tenantId));
  const result = await work();
  await tx.query(leaveTenant);
  return result;
}

const mostNames = 1000;
const names = new Map<string, string>();

/** Prepares texts that are always the same; a program that builds a new text each time must not fill the server. */
function statementName(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined || names.size >= mostNames) return known;
  const name = `tm_${createHash('sha256').update(text).digest('hex').slice(0, 20)}`;
  names.set(text, name);
  return name;
}

/** True where the role is there, this user may take it, and it may use what tenants share and what is theirs. */
const isPrepared = `
  select pg_has_role(current_user, r.oid, 'member')
     and has_table_privilege(r.oid, 'tallyman.kinds', 'select')
     and not exists (select 1 from tallyman.isolated_tables t
                      where not has_table_privilege(r.oid, t.name, 'delete')) as "isPrepared"
    from (select to_regrole('tallyman_tenant')::oid as oid) r
   where r.oid is not null`;

/** Creates the role for tenants if it is missing, or throws with instructions for an administrator. */
export async function prepareTenants(database: Database): Promise<void> {
  const { rows } = await database.query<{ isPrepared: boolean }>(isPrepared);
  if (rows[0]?.isPrepared) return;
  try {
    await database.transaction((tx) => makeTenantRole(tx));
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
