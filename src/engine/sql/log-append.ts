import { Database, type Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logAppendFunction = new SqlFunction(
  'log_append',
  {
    stream: 'text',
    keys: 'text[]',
    digests: 'text[]',
    payloads: 'text',
    strict: 'boolean',
    careful: 'boolean',
  },
  { columns: ['first', 'taken::text'] },
);

/** Raised by a strict append where a key is taken by other content. */
export const keyConflict = 'TM010';

export interface AppendedRow {
  /** The offset of the first entry that was added. */
  readonly first: number;
  /** Entries, counted from 1, whose keys were taken. */
  readonly taken: readonly (readonly [n: number, offset: number, digest: string])[];
}

/** On the hot path where `on` is the database itself. */
export async function logAppend(
  on: Queryable,
  args: ArgumentsOf<typeof logAppendFunction>,
): Promise<AppendedRow> {
  if (on instanceof Database) {
    const [[first, taken] = []] = await logAppendFunction.run(on, args);
    return { first: Number(first), taken: taken ? JSON.parse(taken) : [] };
  }
  const [row] = await logAppendFunction.rows<{ first: string; taken: string | null }>(on, args);
  return { first: Number(row?.first), taken: row?.taken ? JSON.parse(row.taken) : [] };
}
