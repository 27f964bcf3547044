import type { Database } from '../database/database.ts';
import { type JobColumns, jobColumns } from './job-columns.ts';
import { type ArgumentsOf, idsOf, SqlFunction } from './sql-function.ts';

export const claimFunction = new SqlFunction(
  'claim',
  {
    worker: 'text',
    queues: 'text[]',
    wants: 'integer[]',
    total: 'integer',
    kinds: 'text[]',
    isolated: 'text',
    laneJobs: 'integer',
    late: 'boolean',
    leaseMs: 'integer',
    staleMs: 'integer',
    drop: 'bigint[]',
  },
  {
    columns: [
      ...[
        'token',
        'stream',
        'queue',
        'priority',
        'positions',
        'kinds',
        'payloads',
        'created',
        'unusual',
        'lanes',
      ],
      ...['lane_items', 'expired', 'suspects', 'alone', 'limited', 'more'],
    ],
  },
);

export interface ClaimRow {
  readonly token: string;
  readonly stream: number;
  readonly queue: string;
  readonly priority: number;
  readonly jobs: JobColumns;
  /** Of each job, its lane. */
  readonly laneOf: readonly string[];
  /** Undefined: all jobs are free. */
  readonly lanes: readonly (readonly [id: string, pos: string, key: string])[] | undefined;
}

export interface Turn {
  readonly claims: readonly ClaimRow[];
  readonly expired: boolean;
  readonly suspects: boolean;
  readonly alone: boolean;
  readonly limited: boolean;
  readonly more: boolean;
}

/** Takes a turn at a stream. The last row, without a token, has the flags; it is left out when none is set. */
export async function claim(
  database: Pick<Database, 'run'>,
  args: ArgumentsOf<typeof claimFunction>,
): Promise<Turn> {
  const rows = await claimFunction.run(database, args);
  const claims: ClaimRow[] = [];
  let flags: readonly (string | null)[] = [];
  for (const row of rows) {
    const [token, stream, queue, priority, positions, kinds, payloads, created, unusual, lanes, laneItems] =
      row;
    if (!token) {
      flags = row;
      continue;
    }
    claims.push({
      token,
      stream: Number(stream),
      queue: queue ?? '',
      priority: Number(priority),
      jobs: jobColumns(positions, kinds, payloads, created, unusual),
      laneOf: idsOf(lanes),
      lanes: laneItems ? JSON.parse(laneItems) : undefined,
    });
  }
  return {
    claims,
    expired: flags[11] === 't',
    suspects: flags[12] === 't',
    alone: flags[13] === 't',
    limited: flags[14] === 't',
    more: flags[15] === 't',
  };
}
