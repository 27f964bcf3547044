import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logOffsetAtFunction = new SqlFunction('log_offset_at', {
  stream: 'integer',
  at: 'timestamp with time zone',
});

/** The first offset that was appended at a time or later. */
export const logOffsetAt = async (
  on: Queryable,
  args: ArgumentsOf<typeof logOffsetAtFunction>,
): Promise<number> => Number(await logOffsetAtFunction.value<string>(on, args));
