import { Database, type Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const enqueueFullFunction = new SqlFunction(
  'enqueue_full',
  {
    queues: 'text[]',
    priorities: 'smallint[]',
    jobs: 'json',
    notify: 'boolean',
    waitMs: 'integer?',
  },
  { columns: ['id', 'existing'] },
);

export interface EnqueuedRow {
  /** Undefined: not written, its lane is busy (only where `waitMs` is 0). */
  readonly id: string | undefined;
  /** The key was taken: `id` is the first job's. */
  readonly existing: boolean;
}

/** Jobs with lanes or dedupe keys. Answers one row for each, in order. On the hot path where `on` is the database itself. */
export async function enqueueFull(
  on: Queryable,
  args: ArgumentsOf<typeof enqueueFullFunction>,
): Promise<EnqueuedRow[]> {
  if (on instanceof Database)
    return (await enqueueFullFunction.run(on, args)).map(([id, existing]) => ({
      id: id ?? undefined,
      existing: existing === 't',
    }));
  const rows = await enqueueFullFunction.rows<{ id: unknown; existing: boolean }>(on, args);
  return rows.map(({ id, existing }) => ({ id: id === null ? undefined : String(id), existing }));
}
