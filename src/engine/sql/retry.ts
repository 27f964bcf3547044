import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const retryFunction = new SqlFunction('retry', {
  id: 'bigint',
});

/** Lets a job that waits run now. Answers whether there was one. */
export const retry = (on: Queryable, args: ArgumentsOf<typeof retryFunction>): Promise<boolean> =>
  retryFunction.value(on, args);
