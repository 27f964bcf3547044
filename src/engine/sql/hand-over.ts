import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const handOverFunction = new SqlFunction('hand_over', {
  worker: 'text',
  tokens: 'bigint[]',
  streams: 'integer[]',
  positions: 'bigint[]',
  kinds: 'text[]',
});

/** Hands over items whose kind the worker does not know. */
export async function handOver(on: Queryable, args: ArgumentsOf<typeof handOverFunction>): Promise<void> {
  await handOverFunction.rows(on, args);
}
