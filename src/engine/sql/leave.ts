import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const leaveFunction = new SqlFunction('leave', {
  worker: 'text',
});

/** A worker hands back all that it holds, and signs off. */
export async function leave(on: Queryable, args: ArgumentsOf<typeof leaveFunction>): Promise<void> {
  await leaveFunction.rows(on, args);
}
