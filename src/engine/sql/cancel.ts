import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const cancelFunction = new SqlFunction('cancel', {
  id: 'bigint',
  reason: 'text',
  keepMs: 'double precision',
});

/** Answers whether there was a job to cancel. */
export const cancel = (on: Queryable, args: ArgumentsOf<typeof cancelFunction>): Promise<boolean> =>
  cancelFunction.value(on, args);
