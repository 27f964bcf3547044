import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const releaseFunction = new SqlFunction('release', {
  worker: 'text',
  tokens: 'bigint[]',
  positions: 'bigint[]',
});

/** Frees what the worker holds and has not started, at no cost. */
export async function release(on: Queryable, args: ArgumentsOf<typeof releaseFunction>): Promise<void> {
  await releaseFunction.rows(on, args);
}
