import type { Queryable } from '../database/database.ts';
import { SqlFunction } from './sql-function.ts';

export const outgrownTablesFunction = new SqlFunction('outgrown_tables', {});

/** Tables with many more rows than PostgreSQL's statistics say; for plans that were made when they were small. */
export async function outgrownTables(on: Queryable): Promise<readonly string[]> {
  const [row] = await outgrownTablesFunction.rows<{ answer: readonly string[] }>(on, {});
  return row?.answer ?? [];
}
