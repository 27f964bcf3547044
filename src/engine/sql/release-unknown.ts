import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const releaseUnknownFunction = new SqlFunction('release_unknown', {
  worker: 'text',
  known: 'bigint[]',
});

/** Frees claims whose answer never arrived. Answers how many there were. */
export const releaseUnknown = (
  on: Queryable,
  args: ArgumentsOf<typeof releaseUnknownFunction>,
): Promise<number> => releaseUnknownFunction.value(on, args);
