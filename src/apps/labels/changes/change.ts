import type { Queryable } from '../../../engine/database/database.ts';

/**
 * A change of what labels show. It runs in the caller's transaction, and its tasks are part of that transaction (LBL-2).
 * The order of locks and reads in this folder relies on READ COMMITTED, the default.
 */
export interface Change {
  readonly tx: Queryable;
  readonly tenantId: string;
  /** Goes with every task of the change. */
  readonly correlationId?: string;
}
