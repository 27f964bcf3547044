import type { Database } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const markStartedFunction = new SqlFunction('mark_started', {
  worker: 'text',
  tokens: 'bigint[]',
  ids: 'bigint[]',
});

/** Records that jobs are about to start. Answers the tokens of claims that are lost. */
export const markStarted = (
  database: Database,
  args: ArgumentsOf<typeof markStartedFunction>,
): Promise<string[]> => markStartedFunction.ids(database, args);
