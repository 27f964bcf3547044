import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const presentFunction = new SqlFunction('present', {
  worker: 'text',
});

/** A worker says that it is there, from a session that it will keep. */
export async function present(on: Queryable, args: ArgumentsOf<typeof presentFunction>): Promise<void> {
  await presentFunction.rows(on, args);
}
