import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const enqueuePlainFunction = new SqlFunction('enqueue_plain', {
  queues: 'text[]',
  priorities: 'smallint[]',
  jobs: 'json',
  notify: 'boolean',
});

/** Jobs without lane and without dedupe key. Answers their ids, in order. */
export const enqueuePlain = (
  on: Queryable,
  args: ArgumentsOf<typeof enqueuePlainFunction>,
): Promise<string[]> => enqueuePlainFunction.ids(on, args);
