import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logCopyKeysFunction = new SqlFunction(
  'log_copy_keys',
  { stream: 'integer', from: 'bigint', upTo: 'bigint', limit: 'integer' },
  { columns: ['ended', 'bytes'] },
);

/** Copies the keys of entries that are about to be trimmed. Answers the first offset behind them, and their bytes. */
export async function logCopyKeys(
  on: Queryable,
  args: ArgumentsOf<typeof logCopyKeysFunction>,
): Promise<{ readonly ended: number; readonly bytes: number }> {
  const [row] = await logCopyKeysFunction.rows<{ ended: string; bytes: string }>(on, args);
  return { ended: Number(row?.ended), bytes: Number(row?.bytes) };
}
