import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const registerKindFunction = new SqlFunction(
  'register_kind',
  {
    name: 'text',
    queue: 'text?',
    priority: 'integer?',
    maxAttempts: 'integer?',
    lanePolicy: 'text?',
    latestOnly: 'boolean?',
    dedupeKeep: 'interval?',
    isPublic: 'boolean?',
  },
  { prefix: '' },
);

/** Registers the defaults of kinds, for jobs that SQL enqueues. */
export const registerKinds = (
  on: Queryable,
  kinds: readonly ArgumentsOf<typeof registerKindFunction>[],
): Promise<void> => registerKindFunction.forEach(on, kinds);
