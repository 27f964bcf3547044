import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const discardFunction = new SqlFunction('discard', {
  ids: 'bigint[]',
});

/** Deletes dead letters for good. Answers how many there were. */
export const discard = (on: Queryable, args: ArgumentsOf<typeof discardFunction>): Promise<number> =>
  discardFunction.value(on, args);
