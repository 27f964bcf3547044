import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const purgeLeftoversFunction = new SqlFunction(
  'purge_leftovers',
  {
    laneRest: 'interval',
    limit: 'integer',
  },
  { columns: ['keys', 'lanes'] },
);

/** Removes dedupe keys whose time is past and lanes long at rest. Answers how many. */
export async function purgeLeftovers(
  on: Queryable,
  args: ArgumentsOf<typeof purgeLeftoversFunction>,
): Promise<{ readonly keys: number; readonly lanes: number }> {
  const [gone] = await purgeLeftoversFunction.rows<{ keys: number; lanes: number }>(on, args);
  return gone ?? { keys: 0, lanes: 0 };
}
