import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const newDeadLettersFunction = new SqlFunction(
  'new_dead_letters',
  {
    tenants: 'text[]',
    after: 'timestamp with time zone',
  },
  { columns: ['tenant_id', 'id', 'kind', 'queue', 'message', 'failed_at::text'], prefix: '' },
);

export interface NewDeadLetter {
  readonly tenant_id: string;
  readonly id: string;
  readonly kind: string;
  readonly queue: string;
  readonly message: string | null;
  /** As text: a Date would lose the microseconds. */
  readonly failed_at: string;
}

/** The oldest first, some at the most: the last one tells where to go on. */
export const newDeadLetters = (
  on: Queryable,
  args: ArgumentsOf<typeof newDeadLettersFunction>,
): Promise<NewDeadLetter[]> => newDeadLettersFunction.rows(on, args);
