import { Database, type Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const logAppendFunction = new SqlFunction(
  'log_append',
  {
    tenant: 'text',
    stream: 'text',
    keySpace: 'text',
    keyHashes: 'uuid[]',
    keys: 'text[]',
    hashes: 'text',
    bytes: 'integer[]',
    payloads: 'text',
    strict: 'boolean',
    careful: 'boolean',
    epoch: 'uuid',
    expected: 'bigint',
  },
  { columns: ['first', 'taken::text'] },
);

/** What it raises. */
export const logErrors = {
  /** A strict append met a key that is taken by other content. */
  keyConflict: 'TM010',
  streamDeleted: 'TM020',
  otherKeySpace: 'TM021',
  otherEpoch: 'TM022',
  otherOffset: 'TM023',
} as const;

export interface AppendedRow {
  /** The offset of the first entry that was added. */
  readonly first: number;
  /** Entries, counted from 1, whose keys were taken. Half of the digest where the entry was trimmed. */
  readonly taken: readonly (readonly [n: number, stream: number, offset: number, digest: string])[];
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
