import type { Queryable } from '../engine/database/database.ts';
import { notATransaction, rowsOf, transactionOf } from './transaction.ts';

/** What `sql.begin(async (sql) => …)` of postgres.js gives. */
export interface PostgresJsTransaction {
  // biome-ignore lint/suspicious/noExplicitAny: postgres.js has a type of its own for values
  unsafe(query: string, values?: any[]): PromiseLike<readonly unknown[]>;
  // biome-ignore lint/suspicious/noExplicitAny: its type depends on the types that the caller has added
  typed(value: any, type: number): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: it has several forms
  savepoint: (...args: any[]) => unknown;
}

/** The type `unknown`: the server decides, and postgres.js writes the text as it is instead of as JSON once more. */
const unknownType = 705;

/**
 * A transaction of postgres.js, for `tx`.
 *
 * @example
 * await sql.begin(async (sql) => {
 *   await sql`insert into orders (id) values (1)`;
 *   await tallyman.enqueue(pick, { order: 1 }, { tx: fromPostgresJs(sql) });
 * });
 */
export function fromPostgresJs(sql: PostgresJsTransaction): Queryable {
  if (typeof (sql as Partial<PostgresJsTransaction> | undefined)?.savepoint !== 'function')
    throw notATransaction('fromPostgresJs', '`sql.begin(async (sql) => …)`');
  return transactionOf(async (text, values) => {
    const typed = values.map((value) =>
      typeof value === 'string' ? sql.typed(value, unknownType) : (value ?? null),
    );
    return rowsOf(await sql.unsafe(text, typed));
  });
}
