import type { Queryable } from '../engine/database/database.ts';
import { loaded, notATransaction, piecesOf, type Rows, rowsOf, transactionOf } from './transaction.ts';

/** What `db.transaction(async (tx) => …)` of Drizzle gives; any of its drivers for PostgreSQL. */
export interface DrizzleTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: what it takes and returns depends on the driver
  execute(query: any): PromiseLike<any>;
  rollback(): never;
}

/**
 * A transaction of Drizzle, for `tx`.
 *
 * @example
 * await db.transaction(async (tx) => {
 *   await tx.insert(orders).values({ id: 1 });
 *   await tallyman.enqueue(pick, { order: 1 }, { tx: fromDrizzle(tx) });
 * });
 */
export function fromDrizzle(tx: DrizzleTransaction): Queryable {
  // `db` itself has everything that a transaction has, but this.
  if (typeof (tx as Partial<DrizzleTransaction> | undefined)?.rollback !== 'function')
    throw notATransaction('fromDrizzle', '`db.transaction(async (tx) => …)`');
  return transactionOf(async (text, given) => {
    const { sql } = await loaded(import('drizzle-orm'), 'drizzle-orm', 'fromDrizzle');
    const { texts, values } = piecesOf(text, given);
    const parameters = values.map((value) => sql.param(value));
    const answer: unknown = await tx.execute(
      sql(Object.assign(texts, { raw: texts }) as unknown as TemplateStringsArray, ...parameters),
    );
    // A driver answers as its client does: a list of rows, or a result that has them.
    return Array.isArray(answer) ? rowsOf(answer) : (answer as Rows);
  });
}
