import type { Queryable } from '../engine/database/database.ts';
import { loaded, notATransaction, rowsOf, transactionOf } from './transaction.ts';

/** What `db.transaction().execute(async (trx) => …)` and `db.startTransaction().execute()` of Kysely give. */
export interface KyselyTransaction {
  readonly isTransaction: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: a compiled query of Kysely
  executeQuery(query: any): Promise<{ readonly rows: readonly unknown[] }>;
}

/**
 * A transaction of Kysely, for `tx`.
 *
 * @example
 * await db.transaction().execute(async (trx) => {
 *   await trx.insertInto('orders').values({ id: 1 }).execute();
 *   await tallyman.enqueue(pick, { order: 1 }, { tx: fromKysely(trx) });
 * });
 */
export function fromKysely(trx: KyselyTransaction): Queryable {
  if ((trx as KyselyTransaction | undefined)?.isTransaction !== true)
    throw notATransaction('fromKysely', '`db.transaction().execute(async (trx) => …)`');
  return transactionOf(async (text, values) => {
    const { CompiledQuery } = await loaded(import('kysely'), 'kysely', 'fromKysely');
    return rowsOf((await trx.executeQuery(CompiledQuery.raw(text, [...values]))).rows);
  });
}
