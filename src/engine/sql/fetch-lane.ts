import type { Database } from '../database/database.ts';
import { type JobColumns, jobColumns } from './job-columns.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const fetchLaneFunction = new SqlFunction(
  'fetch_lane',
  {
    worker: 'text',
    token: 'bigint',
    lane: 'bigint',
    lanePos: 'bigint',
    after: 'bigint',
    limit: 'integer',
    unconfirmed: 'integer',
  },
  { columns: ['positions', 'kinds', 'payloads', 'created', 'unusual'] },
);

/** More jobs of a lane that the worker holds. Undefined: there are none, or it no longer holds the lane. */
export async function fetchLane(
  database: Pick<Database, 'run'>,
  args: ArgumentsOf<typeof fetchLaneFunction>,
): Promise<JobColumns | undefined> {
  const [row] = await fetchLaneFunction.run(database, args);
  return row && jobColumns(row[0], row[1], row[2], row[3], row[4]);
}
