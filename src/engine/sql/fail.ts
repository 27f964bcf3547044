import type { Database } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const failFunction = new SqlFunction(
  'fail',
  {
    worker: 'text',
    items: 'json',
    keepMs: 'double precision',
  },
  { columns: ['id', 'status', 'let_go', 'blocked'] },
);

/** A failed attempt. Of a job in a lane that is to be let go with it, also `lane` and `lane_pos`. */
export interface FailedItem {
  readonly id: string;
  readonly pos: string;
  /** As far as the worker knows. */
  readonly attempts: number;
  readonly token: string;
  readonly lane?: string;
  readonly lane_pos?: string;
  readonly error: { readonly code: string; readonly message: string; readonly stack: string | undefined };
  readonly delay_ms: number;
  readonly permanent: boolean;
  readonly cost: 0 | 1;
  readonly dead: boolean;
}

export interface FailedRow {
  readonly id: string;
  readonly status: 'QUEUED' | 'FAILED' | 'DEAD_LETTER' | 'LOST';
  /** Its lane was let go. */
  readonly letGo: boolean;
  /** Its lane waits for a person because of it. */
  readonly blocked: boolean;
}

/** Reports failed attempts, fenced. What is not answered was cancelled. */
export async function fail(
  database: Pick<Database, 'run'>,
  {
    items,
    ...args
  }: Omit<ArgumentsOf<typeof failFunction>, 'items'> & { readonly items: readonly FailedItem[] },
): Promise<FailedRow[]> {
  const rows = await failFunction.run(database, { ...args, items: JSON.stringify(items) });
  return rows.map(([id, status, letGo, blocked]) => ({
    id: id ?? '',
    status: status as FailedRow['status'],
    letGo: letGo === 't',
    blocked: blocked === 't',
  }));
}
