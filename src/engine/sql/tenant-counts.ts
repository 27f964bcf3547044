import type { Queryable } from '../database/database.ts';
import { type ArgumentsOf, SqlFunction } from './sql-function.ts';

export const tenantCountsFunction = new SqlFunction(
  'tenant_counts',
  {
    tenants: 'text[]',
  },
  {
    columns: [
      'tenant_id',
      'ready',
      'waiting',
      'running',
      'dead_letters',
      'blocked_lanes',
      'finished_last_minute',
    ],
    prefix: '',
  },
);

export interface TenantCounts {
  readonly tenant_id: string;
  readonly ready: number;
  readonly waiting: number;
  readonly running: number;
  readonly dead_letters: number;
  readonly blocked_lanes: number;
  /** Jobs that ended in the last minute. */
  readonly finished_last_minute: number;
}

export const tenantCounts = (
  on: Queryable,
  args: ArgumentsOf<typeof tenantCountsFunction>,
): Promise<TenantCounts[]> => tenantCountsFunction.rows(on, args);
