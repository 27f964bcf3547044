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
  /**
   * Images that must be drawn before the change is accepted are drawn after a rollback: the change throws
   * `OutsideTransaction`, whose work makes them, and then runs again. Default: in the transaction, which holds locks meanwhile.
   */
  readonly drawsOutside?: boolean;
}
