import type { Queryable } from '../../../engine/database/database.ts';

/**
 * Where a change is made: inside a transaction of the caller's, which the tasks of the change are part of (LBL-2).
 * READ COMMITTED, the default, is what the order of locks and reads in this folder is made for.
 */
export interface Change {
  readonly tx: Queryable;
  readonly tenantId: string;
  /** Goes with every task of the change. */
  readonly correlationId?: string;
}
