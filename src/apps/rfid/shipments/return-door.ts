import { plainArray } from '../../../engine/database/array-literal.ts';
import type { Queryable } from '../../../engine/database/database.ts';
import type { Outcome } from '../decide.ts';

/** The role of devices at which baskets come back. */
export const returnDoorRole = 'return-door';

/**
 * Marks baskets read at a return door as returned and closes their shipment lines. Their place comes from movements: the
 * return location is the door's. A stale read moves no basket, but the return did happen.
 *
 * Runs in the transaction that processes the reads and holds the baskets. Reads processed before do nothing.
 */
export async function returnBaskets(tx: Queryable, outcomes: readonly Outcome[]): Promise<void> {
  const returns = outcomes.filter(
    ({ read, basketId, skipReason }) =>
      read.role === returnDoorRole && basketId !== null && skipReason !== 'duplicate',
  );
  if (returns.length === 0) return;
  await tx.query('select rfid.return_baskets($1, $2)', [
    plainArray(returns.map(({ basketId }) => basketId)),
    plainArray(returns.map(({ read }) => read.timestamp)),
  ]);
}
