/** Writes what late reads change: see functions/late.sql. */
import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import type { Queryable } from '../../engine/database/database.ts';
import { formatInstant } from '../../engine/instant.ts';
import { emitMany, type NewEvent } from '../../events/emit.ts';
import type { Decision, MovementRef } from './decide.ts';
import type { MovementFacts, Reordered } from './reorder.ts';
import { instant } from './store.ts';

/** Before the new movements are written: they may have the keys of movements that go. */
export async function correctMovements(tx: Queryable, { reordered }: Decision): Promise<void> {
  const withdrawn = reordered.flatMap((basket) => basket.withdrawn);
  const changed = reordered.flatMap((basket) => basket.changed);
  if (withdrawn.length + changed.length === 0) return;
  await tx.query('select rfid.correct_movements($1, $2, $3, $4, $5, $6)', [
    plainArray(withdrawn),
    plainArray(changed.map(({ id }) => id)),
    plainArray(changed.map(({ from }) => from)),
    plainArray(changed.map(({ windowStart }) => formatInstant(windowStart))),
    plainArray(changed.map(({ repeats }) => repeats)),
    plainArray(changed.map(({ lastAt }) => instant(lastAt))),
  ]);
}

/** After the new movements are written. `ids`: of these. */
export async function placeBaskets(
  tx: Queryable,
  { reordered }: Decision,
  ids: readonly string[],
): Promise<void> {
  if (reordered.length === 0) return;
  const idOf = (ref: MovementRef | null): string | null =>
    typeof ref === 'number' ? (ids[ref] ?? null) : ref;
  const judgements = reordered.flatMap((basket) => basket.judgements);
  if (judgements.length > 0)
    await tx.query('select rfid.judge_again($1, $2, $3)', [
      plainArray(judgements.map(({ readId }) => readId)),
      plainArray(judgements.map(({ movement }) => idOf(movement))),
      textArray(judgements.map(({ skip }) => skip)),
    ]);
  await tx.query('select rfid.place_baskets($1, $2, $3, $4, $5, $6, $7)', [
    plainArray(reordered.map(({ id }) => id)),
    plainArray(reordered.map(({ locationId }) => locationId)),
    plainArray(reordered.map(({ placeId }) => placeId)),
    plainArray(reordered.map(({ firstAt }) => formatInstant(firstAt))),
    plainArray(reordered.map(({ lastSeenAt }) => formatInstant(lastSeenAt))),
    textArray(reordered.map(({ deviceId }) => deviceId)),
    plainArray(reordered.map(({ lastMovement }) => idOf(lastMovement))),
  ]);
  await emitMany(
    tx,
    reordered.flatMap((basket) => eventsOf(basket, idOf)),
  );
}

const eventsOf = (
  { corrections, tenantId, epcHex }: Reordered,
  idOf: (ref: MovementRef) => string | null,
): NewEvent[] =>
  corrections.map(({ movement, was, is }) => ({
    type: 'rfid.movement.corrected',
    aggregateType: 'basket',
    aggregateId: epcHex,
    tenantId,
    payload: { movement_id: idOf(movement), epc_hex: epcHex, was: told(was), is: told(is) },
    occurredAt: new Date(((is ?? was)?.at ?? 0) / 1000),
  }));

const told = (facts: MovementFacts | null) =>
  facts && {
    from_location_id: facts.from,
    to_location_id: facts.to,
    device_id: facts.deviceId,
    at: formatInstant(facts.at),
  };
