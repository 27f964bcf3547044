import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const enqueueAlikeFunction = new SqlFunction('enqueue_alike', {
  queue: 'text',
  priority: 'smallint',
  kind: 'text',
  maxAttempts: 'smallint',
  tenant: 'text',
  correlation: 'text',
  trace: 'text',
  payloads: 'json',
  notify: 'boolean',
});

/** Jobs that differ in nothing but their payload. Answers their ids, in order. */
export const enqueueAlike = (
  on: Queryable,
  args: ArgumentsOf<typeof enqueueAlikeFunction>,
): Promise<string[]> => enqueueAlikeFunction.ids(on, args);
