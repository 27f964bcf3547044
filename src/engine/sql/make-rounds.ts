import type { Database } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const makeRoundsFunction = new SqlFunction(
  'make_rounds',
  {
    limit: 'integer',
    allReturn: 'boolean',
  },
  { columns: ['promoted', 'next_due_ms', 'to_json(gone)', 'look_again_ms', 'expired'] },
);

/** What a round found; see `tallyman.promote` and `tallyman.absent_workers`. */
export interface Rounds {
  readonly promoted: number;
  readonly nextDueMs: number | undefined;
  readonly gone: readonly string[];
  readonly lookAgainMs: number | undefined;
  /** A lease has expired. */
  readonly hasExpired: boolean;
}

/** Puts what has fallen due on its stream, and looks for workers that are gone. */
export async function makeRounds(
  database: Pick<Database, 'run'>,
  args: ArgumentsOf<typeof makeRoundsFunction>,
): Promise<Rounds> {
  const [[promoted, nextDueMs, gone, lookAgainMs, expired] = []] = await makeRoundsFunction.run(
    database,
    args,
  );
  return {
    promoted: Number(promoted),
    nextDueMs: numberOf(nextDueMs),
    gone: gone ? JSON.parse(gone) : [],
    lookAgainMs: numberOf(lookAgainMs),
    hasExpired: expired === 't',
  };
}

const numberOf = (cell: string | null | undefined): number | undefined =>
  cell === null || cell === undefined ? undefined : Number(cell);
