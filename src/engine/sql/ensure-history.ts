import type { Queryable } from '../database/database.ts';
import { type SomeArgumentsOf, SqlFunction } from './sql-function.ts';

export const ensureHistoryFunction = new SqlFunction('ensure_history', {
  daysAhead: 'integer?',
});

/** Makes the partitions of the days ahead. Answers how many were missing. */
export const ensureHistory = (
  on: Queryable,
  args: SomeArgumentsOf<typeof ensureHistoryFunction>,
): Promise<number> => ensureHistoryFunction.value(on, args);
