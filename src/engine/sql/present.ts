import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const presentFunction = new SqlFunction('present', {
  worker: 'text',
});

/** Marks a worker as present, for as long as this session lasts. */
export async function present(on: Queryable, args: ArgumentsOf<typeof presentFunction>): Promise<void> {
  await presentFunction.rows(on, args);
}
