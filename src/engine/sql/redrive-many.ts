import type { Queryable } from '../database/database.ts';
import { type SomeArgumentsOf, SqlFunction } from './sql-function.ts';

export const redriveManyFunction = new SqlFunction('redrive_many', {
  ids: 'bigint[]',
  toHead: 'boolean?',
});

/** Redrives dead letters. Answers how many there were. */
export const redriveMany = (
  on: Queryable,
  args: SomeArgumentsOf<typeof redriveManyFunction>,
): Promise<number> => redriveManyFunction.value(on, args);
