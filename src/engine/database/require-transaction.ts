import { TallymanError } from '../errors.ts';
import { Database, type Queryable } from './database.ts';
import { TenantDatabase } from './tenant.ts';

/**
 * Refuses what is no transaction, though it runs SQL: on a pool each statement commits by itself, so the job would be there
 * even if the caller rolls back.
 */
export function requireTransaction(tx: unknown): asserts tx is Queryable {
  if (tx instanceof Database || tx instanceof TenantDatabase || isPool(tx))
    throw new TallymanError(
      'BAD_OPTION',
      'tx is a pool of connections, not a transaction: each statement would commit by itself. Pass the client that ran ' +
        '`begin`, or leave tx out.',
    );
  if (typeof (tx as Queryable | null)?.query !== 'function')
    throw new TallymanError(
      'BAD_OPTION',
      'tx is not a transaction: expected something with query(text, values), such as a client of pg. Wrap a transaction of ' +
        'another library: fromDrizzle of "tallyman/drizzle", fromKnex of "tallyman/knex", fromKysely of "tallyman/kysely", ' +
        'fromPrisma of "tallyman/prisma", fromPostgresJs of "tallyman/postgres-js".',
    );
}

/** By its shape: the caller may have a copy of pg of its own. */
const isPool = (tx: unknown): boolean =>
  typeof tx === 'object' && tx !== null && 'totalCount' in tx && 'idleCount' in tx && 'connect' in tx;
