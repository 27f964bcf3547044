import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const unblockFunction = new SqlFunction('unblock', {
  lane: 'bigint',
});

/** Answers whether the lane was blocked. */
export const unblock = (on: Queryable, args: ArgumentsOf<typeof unblockFunction>): Promise<boolean> =>
  unblockFunction.value(on, args);
