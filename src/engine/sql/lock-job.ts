import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const lockJobFunction = new SqlFunction(
  'lock_job',
  {
    id: 'bigint',
  },
  { prefix: '' },
);

/** Keeps a job from ending before the transaction does. Answers whether it is there. */
export const lockJob = (on: Queryable, args: ArgumentsOf<typeof lockJobFunction>): Promise<boolean> =>
  lockJobFunction.value(on, args);
