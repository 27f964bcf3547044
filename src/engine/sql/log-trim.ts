import type { Database } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logTrimFunction = new SqlFunction('log_trim', {
  stream: 'text',
  upTo: 'bigint',
  limit: 'integer',
});

/** Drops entries from the start of a stream. Answers how many. */
export async function logTrim(
  database: Pick<Database, 'run'>,
  args: ArgumentsOf<typeof logTrimFunction>,
): Promise<number> {
  const [row] = await logTrimFunction.run(database, args);
  return Number(row?.[0] ?? 0);
}
