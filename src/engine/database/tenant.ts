/**
 * One tenant's rows and no others: statements run under the database's role for tenants, with the tenant's name in the
 * transaction, and row-level security does the rest (migrations/0002_tenants.sql). HTTP requests and handlers both work this way.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { messageOf, TallymanError } from '../errors.ts';
import type { Transactor } from '../locks/exclusive.ts';
import { isTenantRoleReady } from '../sql/is-tenant-role-ready.ts';
import { prepareTenantRole } from '../sql/prepare-tenant-role.ts';
import { takeTenantRole } from '../sql/tenant-role.ts';
import type { Hint } from '../wakeups/wakeup.ts';
import { type Waker, wakeAfterCommit } from './after-commit.ts';
import type { Database, Queryable, TransactionOptions } from './database.ts';

/** Puts the rest of a transaction under one tenant. Text without parameters, so that it can travel with `begin`. */
export const enterTenant = ({ tenantRole }: Pick<Database, 'tenantRole'>, tenantId: string): string =>
  `set local role ${tenantRole}; set local tallyman.tenant = ${pg.escapeLiteral(tenantId)}`;

/** Back to the user that connected. */
export const leaveTenant = 'reset role';

export { takeTenantRole } from '../sql/tenant-role.ts';

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
    const result = await this.#database.queryWithin(enterTenant(this.#database, this.tenantId), {
      text,
      values,
      name,
    });
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
    opening: enterTenant(database, tenantId),
  });
}

/**
 * Runs `work` under one tenant, inside a transaction that also does what no tenant may, such as moving a checkpoint.
 * If `work` throws, the transaction must end.
 */
export async function withinTenant<T>(tx: Queryable, tenantId: string, work: () => Promise<T>): Promise<T> {
  await tx.query(`${takeTenantRole}; set local tallyman.tenant = ${pg.escapeLiteral(tenantId)}`);
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

/** Creates the role for tenants of this database if it is missing, or throws with instructions for an administrator. */
export async function prepareTenants(database: Database): Promise<void> {
  if (await isTenantRoleReady(database)) return;
  try {
    await database.transaction((tx) => prepareTenantRole(tx));
  } catch (error) {
    if ((error as { code?: string }).code !== '42501') throw error;
    const role = database.tenantRole;
    throw new TallymanError(
      'MISSING_PRIVILEGES',
      `The database user may not make the role that keeps the tenants of this database apart (${messageOf(error)}). ` +
        `Let an administrator run: create role ${role} nologin; grant ${role} to <this user>;`,
      { cause: error },
    );
  }
}
