/** The statements of processTagReads: see functions/process.sql, which has one function for each. */

import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import type { Queryable } from '../../engine/database/database.ts';
import { formatInstant, type Micros, secondsToMicros } from '../../engine/instant.ts';
import type { Decision, KnownBasket, Processed } from './decide.ts';
import type { ExaminedRead } from './tag-read.ts';

/** Reads as PostgreSQL arrays. Built before any basket is locked, so that others do not wait for it. */
export interface ReadColumns {
  readonly baskets: {
    readonly keys: readonly string[];
    readonly tenants: string | null;
    readonly epcs: string | null;
    readonly uris: string | null;
  };
  readonly tenants: string | null;
  readonly tagReads: string | null;
  readonly hashes: string | null;
  readonly processors: string | null;
  readonly timestamps: string | null;
  readonly epcs: string | null;
  readonly devices: string | null;
}

export function columnsOf(reads: readonly ExaminedRead[]): ReadColumns {
  const baskets = new Map(reads.map((read) => [read.basketKey, read]));
  const firsts = [...baskets.values()];
  return {
    baskets: {
      keys: [...baskets.keys()],
      tenants: textArray(firsts.map((read) => read.tenantId)),
      epcs: plainArray(firsts.map((read) => read.epcHex)),
      uris: textArray(firsts.map((read) => read.epcUri)),
    },
    tenants: textArray(reads.map((read) => read.tenantId)),
    tagReads: plainArray(reads.map((read) => read.zbTagReadId)),
    hashes: plainArray(reads.map((read) => read.contentHash)),
    processors: plainArray(reads.map((read) => read.processorType)),
    timestamps: plainArray(reads.map((read) => read.timestamp)),
    epcs: plainArray(reads.map((read) => read.epcHex)),
    devices: textArray(reads.map((read) => read.deviceId)),
  };
}

interface BasketRow {
  readonly n: string;
  readonly id: string;
  readonly location_id: string | null;
  readonly last_seen_at: string | null;
  readonly movement_id: string | null;
  readonly moved_from: string | null;
  readonly moved_to: string | null;
  readonly moved_at: string | null;
}

/** Locks the baskets of these reads and creates the missing ones. */
export async function takeBaskets(
  tx: Queryable,
  { baskets }: ReadColumns,
): Promise<Map<string, KnownBasket>> {
  const { rows } = await tx.query<BasketRow>('select * from rfid.take_baskets($1, $2, $3)', [
    baskets.tenants,
    baskets.epcs,
    baskets.uris,
  ]);
  return new Map(rows.map((row) => [baskets.keys[Number(row.n) - 1] as string, basketOf(row)]));
}

function basketOf(row: BasketRow): KnownBasket {
  return {
    id: row.id,
    locationId: row.location_id,
    lastSeenAt: row.last_seen_at === null ? null : microsOf(row.last_seen_at),
    lastMovement:
      row.movement_id === null || row.moved_to === null || row.moved_at === null
        ? null
        : { id: row.movement_id, from: row.moved_from, to: row.moved_to, at: microsOf(row.moved_at) },
  };
}

/** PostgreSQL writes seconds with all six digits of their fraction. */
function microsOf(seconds: string): Micros {
  const [whole, fraction = ''] = seconds.split('.');
  return Number(whole) * secondsToMicros + Number(fraction.padEnd(6, '0'));
}

/** The reads at these indexes that were processed before, by index. The caller must have locked their baskets. */
export async function findProcessed(
  tx: Queryable,
  reads: readonly ExaminedRead[],
  places: readonly number[],
): Promise<Map<number, Processed>> {
  if (places.length === 0) return new Map();
  const asked = places.map((place) => reads[place] as ExaminedRead);
  const { rows } = await tx.query<{ n: string; basket_id: string | null; movement_id: string | null }>(
    'select * from rfid.processed($1, $2, $3)',
    [
      textArray(asked.map((read) => read.tenantId)),
      plainArray(asked.map((read) => read.contentHash)),
      plainArray(asked.map((read) => read.zbTagReadId)),
    ],
  );
  return new Map(
    rows.map((row) => [
      places[Number(row.n) - 1] as number,
      { basketId: row.basket_id, movementId: row.movement_id },
    ]),
  );
}

/** Writes the decision about these reads; returns the ids of the movements. */
export async function record(
  tx: Queryable,
  reads: ReadColumns,
  { movements, baskets, outcomes }: Decision,
): Promise<readonly string[]> {
  const epcs = new Map(baskets.map(({ id, epcHex }) => [id, epcHex]));
  const lastMoves = baskets.map(({ movement }) => (movement === null ? undefined : movements[movement]));
  const { rows } = await tx.query<{ ids: string[] }>(
    `select rfid.record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                        $22, $23, $24, $25, $26, $27, $28) as ids`,
    [
      textArray(movements.map((move) => move.tenantId)),
      plainArray(movements.map((move) => move.basketId)),
      plainArray(movements.map((move) => move.from)),
      plainArray(movements.map((move) => move.to)),
      plainArray(movements.map((move) => formatInstant(move.at))),
      plainArray(movements.map((move) => formatInstant(move.windowStart))),
      textArray(movements.map((move) => move.deviceId)),
      plainArray(baskets.map((basket) => basket.id)),
      plainArray(baskets.map((basket) => basket.locationId)),
      plainArray(baskets.map((basket) => formatInstant(basket.lastSeenAt))),
      textArray(baskets.map((basket) => basket.deviceId)),
      plainArray(baskets.map(({ movement }) => (movement === null ? null : movement + 1))),
      plainArray(lastMoves.map((move) => move?.from ?? null)),
      plainArray(lastMoves.map((move) => move?.to ?? null)),
      plainArray(lastMoves.map((move) => (move ? formatInstant(move.at) : null))),
      reads.tenants,
      reads.tagReads,
      reads.hashes,
      reads.processors,
      reads.timestamps,
      plainArray(outcomes.map((outcome) => outcome.basketId)),
      plainArray(outcomes.map(({ movement }) => (typeof movement === 'number' ? movement + 1 : null))),
      plainArray(outcomes.map(({ movement }) => (typeof movement === 'string' ? movement : null))),
      reads.epcs,
      reads.devices,
      plainArray(outcomes.map((outcome) => outcome.isNewBasket)),
      textArray(outcomes.map((outcome) => outcome.skipReason)),
      plainArray(movements.map((move) => epcs.get(move.basketId) ?? null)),
    ],
  );
  return rows[0]?.ids ?? [];
}
