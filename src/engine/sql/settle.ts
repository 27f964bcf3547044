import type { Database } from '../database/database.ts';
import { type ArgumentsOf, idsOf, SqlFunction } from './sql-function.ts';

export const settleFunction = new SqlFunction(
  'settle',
  {
    worker: 'text',
    claims: 'bigint[]',
    streams: 'integer[]',
    positions: 'bigint[]',
    jobLanes: 'bigint[]',
    firstSeqs: 'bigint[]',
    lastSeqs: 'bigint[]',
    seqs: 'bigint[]',
    superseded: 'bigint[]',
    keepMs: 'double precision',
    lanes: 'bigint[]',
    lanePositions: 'bigint[]',
    laneFloors: 'bigint[]',
    laneMore: 'boolean[]',
    drop: 'bigint[]',
    expected: 'integer',
  },
  { columns: ['lost', 'missing', 'let_go', 'requeued'] },
);

/** What a settle with `expected` answers when it does not find all of the jobs. */
export const someAreGone = 'TM010';

export interface Settled {
  /** Tokens. If there is one, nothing was written. */
  readonly lost: readonly string[];
  /** Positions of jobs that were cancelled meanwhile. */
  readonly missing: readonly string[];
  /** Lanes. */
  readonly letGo: readonly string[];
  /** One of these has more work. */
  readonly requeued: boolean;
}

/** Completes jobs and lets go of lanes, fenced. */
export async function settle(
  database: Pick<Database, 'run'>,
  args: ArgumentsOf<typeof settleFunction>,
): Promise<Settled> {
  const [row = []] = await settleFunction.run(database, args);
  return { lost: idsOf(row[0]), missing: idsOf(row[1]), letGo: idsOf(row[2]), requeued: row[3] === 't' };
}
