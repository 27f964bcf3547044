import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const streamsOfFunction = new SqlFunction('streams_of', {
  queues: 'text[]',
  priorities: 'smallint[]',
});

/** Makes the streams that are missing. */
export async function streamsOf(on: Queryable, args: ArgumentsOf<typeof streamsOfFunction>): Promise<void> {
  await streamsOfFunction.rows(on, args);
}
