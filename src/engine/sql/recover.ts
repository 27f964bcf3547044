import type { Database } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const recoverFunction = new SqlFunction(
  'recover',
  {
    gone: 'text[]',
    delays: 'json',
    keepMs: 'double precision',
  },
  { columns: ['worker', 'freed', 'counted', 'status'] },
);

export interface RecoveredRow {
  readonly worker: string;
  readonly freed: number;
  /** The job that lost an attempt. */
  readonly counted: string | undefined;
  /** What became of it. */
  readonly status: string | undefined;
}

/** Takes back what workers held that are gone, or whose lease is past. */
export async function recover(
  database: Pick<Database, 'run'>,
  {
    delays,
    ...args
  }: Omit<ArgumentsOf<typeof recoverFunction>, 'delays'> & {
    /** For each kind, in milliseconds: after the first attempt, the second, and so on. */
    readonly delays: Readonly<Record<string, readonly number[]>>;
  },
): Promise<RecoveredRow[]> {
  const rows = await recoverFunction.run(database, { ...args, delays: JSON.stringify(delays) });
  return rows.map(([worker, freed, counted, status]) => ({
    worker: worker ?? '',
    freed: Number(freed),
    counted: counted ?? undefined,
    status: status ?? undefined,
  }));
}
