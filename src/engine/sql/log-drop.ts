import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logDropFunction = new SqlFunction('log_drop', { stream: 'integer', limit: 'integer' });

/** Deletes entries below the first offset. Answers how many. */
export const logDrop = (on: Queryable, args: ArgumentsOf<typeof logDropFunction>): Promise<number> =>
  logDropFunction.value<number>(on, args);
