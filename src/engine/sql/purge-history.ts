import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const purgeHistoryFunction = new SqlFunction('purge_history', {
  keep: 'interval',
});

/** Drops the partitions that are older. Answers their names. */
export const purgeHistory = (
  on: Queryable,
  args: ArgumentsOf<typeof purgeHistoryFunction>,
): Promise<string[]> => purgeHistoryFunction.value(on, args);
