import type { Queryable } from '../database/database.ts';
import { type SomeArgumentsOf, SqlFunction } from './sql-function.ts';

export const redriveFunction = new SqlFunction('redrive', {
  id: 'bigint',
  toHead: 'boolean?',
});

/** Redrives a dead letter. Answers whether there was one. */
export const redrive = (on: Queryable, args: SomeArgumentsOf<typeof redriveFunction>): Promise<boolean> =>
  redriveFunction.value(on, args);
