import { plainArray } from '../../../engine/database/array-literal.ts';
import type { Queryable } from '../../../engine/database/database.ts';
import { formatInstant } from '../../../engine/instant.ts';
import type { Return } from '../decide.ts';

export { returnDoorRole } from '../tag-read.ts';

/**
 * Marks baskets read at a return door as returned and closes their shipment lines. Their place comes from movements: the
 * return location is the door's. A stale read moves no basket, but the return did happen.
 *
 * Runs in the transaction that processes the reads and holds the baskets. Reads processed before do nothing.
 */
export async function returnBaskets(tx: Queryable, returns: readonly Return[]): Promise<void> {
  if (returns.length === 0) return;
  await tx.query('select rfid.return_baskets($1, $2, $3)', [
    plainArray(returns.map(({ basketId }) => basketId)),
    plainArray(returns.map(({ at }) => formatInstant(at))),
    plainArray(returns.map(({ begins }) => begins)),
  ]);
}
