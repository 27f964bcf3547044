import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logNewEpochFunction = new SqlFunction('log_new_epoch', {
  stream: 'integer',
  nextOffset: 'bigint',
});

/** Starts a new epoch of a stream. Answers its id. */
export const logNewEpoch = (on: Queryable, args: ArgumentsOf<typeof logNewEpochFunction>): Promise<string> =>
  logNewEpochFunction.value<string>(on, args);
