import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logAdvanceFunction = new SqlFunction('log_advance', {
  stream: 'integer',
  from: 'bigint',
  ended: 'bigint',
  bytes: 'bigint',
});

/** Moves the first offset of a stream on. False: somebody else has trimmed meanwhile. */
export const logAdvance = (on: Queryable, args: ArgumentsOf<typeof logAdvanceFunction>): Promise<boolean> =>
  logAdvanceFunction.value<boolean>(on, args);
