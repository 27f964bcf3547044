import type { Queryable } from '../engine/database/database.ts';
import { notATransaction, piecesOf, type Rows, transactionOf } from './transaction.ts';

/** What `knex.transaction(async (trx) => …)` gives, with the client `pg`. */
export interface KnexTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: Knex has a type of its own for values, and says nothing about the answer
  raw(sql: string, bindings: any): PromiseLike<any>;
  readonly isTransaction?: boolean;
}

/**
 * A transaction of Knex, for `tx`.
 *
 * @example
 * await knex.transaction(async (trx) => {
 *   await trx('orders').insert({ id: 1 });
 *   await tallyman.enqueue(pick, { order: 1 }, { tx: fromKnex(trx) });
 * });
 */
export function fromKnex(trx: KnexTransaction): Queryable {
  if ((trx as KnexTransaction | undefined)?.isTransaction !== true)
    throw notATransaction('fromKnex', '`knex.transaction(async (trx) => …)`');
  return transactionOf(async (text, given) => {
    const { texts, values } = piecesOf(text, given);
    // Knex counts question marks; one that is meant is written with a backslash.
    const sql = texts.map((part) => part.replaceAll('?', '\\?')).join('?');
    return (await trx.raw(
      sql,
      values.map((value) => value ?? null),
    )) as Rows;
  });
}
