/** The statements of processTagReads: see functions/process.sql, which has one function for each. */

import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import { binaryTextArray, bytesArray, timeArray } from '../../engine/database/binary-array.ts';
import type { Queryable } from '../../engine/database/database.ts';
import { formatInstant, type Micros } from '../../engine/instant.ts';
import type { Decision, KnownBasket, Processed, RecentMovement } from './decide.ts';
import { microsOf } from './micros.ts';
import { type ExaminedRead, isReturn } from './tag-read.ts';
import { bucketStart } from './track.ts';

/** Reads as PostgreSQL arrays, texts or binary. Built before any basket is locked, so that others do not wait for it. */
export interface ReadColumns {
  readonly baskets: {
    readonly keys: readonly string[];
    readonly tenants: Buffer | null;
    readonly epcs: Buffer | null;
    readonly uris: Buffer | null;
    /** Where each is seen; null: at several places. */
    readonly locations: string | null;
    /** When each is seen first. */
    readonly since: readonly Micros[];
  };
  readonly tenants: Buffer | null;
  readonly tagReads: string | null;
  readonly hashes: Buffer;
  readonly processors: Buffer | null;
  readonly at: Buffer | null;
  readonly epcs: Buffer | null;
  readonly devices: Buffer | null;
  readonly locations: string | null;
  readonly returns: string | null;
}

interface FirstSight {
  readonly read: ExaminedRead;
  locationId: string | null;
  at: Micros;
}

export function columnsOf(reads: readonly ExaminedRead[]): ReadColumns {
  const baskets = new Map<string, FirstSight>();
  for (const read of reads) {
    const seen = baskets.get(read.basketKey);
    if (!seen) baskets.set(read.basketKey, { read, locationId: read.locationId, at: read.at });
    else {
      if (seen.locationId !== read.locationId) seen.locationId = null;
      if (read.at < seen.at) seen.at = read.at;
    }
  }
  const sights = [...baskets.values()];
  const firsts = sights.map(({ read }) => read);
  return {
    baskets: {
      keys: [...baskets.keys()],
      locations: plainArray(sights.map(({ locationId }) => locationId)),
      since: sights.map(({ at }) => at),
      tenants: binaryTextArray(firsts.map((read) => read.tenantId)),
      epcs: binaryTextArray(firsts.map((read) => read.epcHex)),
      uris: binaryTextArray(firsts.map((read) => read.epcUri)),
    },
    tenants: binaryTextArray(reads.map((read) => read.tenantId)),
    tagReads: plainArray(reads.map((read) => read.zbTagReadId)),
    hashes: bytesArray(reads.map((read) => read.contentHash)),
    processors: binaryTextArray(reads.map((read) => read.processorType)),
    at: timeArray(reads.map((read) => read.at)),
    epcs: binaryTextArray(reads.map((read) => read.epcHex)),
    devices: binaryTextArray(reads.map((read) => read.deviceId)),
    locations: plainArray(reads.map((read) => read.locationId)),
    returns: plainArray(reads.map((read) => (isReturn(read) ? true : null))),
  };
}

interface BasketRow {
  readonly n: number;
  readonly id: string;
  readonly location_id: string | null;
  readonly place_id: string | null;
  readonly last_seen_at: string | null;
  readonly movement_id: string | null;
  readonly moved_at: string | null;
  readonly recent: string | null;
}

/** Locks the baskets of these reads and creates the missing ones. */
export async function takeBaskets(
  tx: Queryable,
  { baskets }: ReadColumns,
  window: Micros,
): Promise<Map<string, KnownBasket>> {
  const { rows } = await tx.query<BasketRow>('select * from rfid.lock_baskets($1, $2, $3, $4, $5, $6)', [
    baskets.tenants,
    baskets.epcs,
    baskets.uris,
    baskets.locations,
    timeArray(baskets.since.map((at) => at - window)),
    timeArray(baskets.since.map((at) => bucketStart(at - window, window))),
  ]);
  return new Map(rows.map((row) => [baskets.keys[row.n - 1] as string, basketOf(row)]));
}

function basketOf(row: BasketRow): KnownBasket {
  return {
    id: row.id,
    locationId: row.location_id,
    placeId: row.place_id,
    lastSeenAt: row.last_seen_at === null ? null : microsOf(row.last_seen_at),
    lastMovement:
      row.movement_id === null || row.moved_at === null
        ? null
        : { id: row.movement_id, at: microsOf(row.moved_at) },
    recent:
      row.recent === null
        ? none
        : row.recent
            .split(';')
            .map(recentOf)
            .sort((a, b) => a.at - b.at),
  };
}

const none: readonly RecentMovement[] = [];

function recentOf(text: string): RecentMovement {
  const [id = '', from = '', to = '', at = ''] = text.split(',');
  return { id, from: from === 'n' ? null : from, to, at: microsOf(at) };
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
export async function save(
  tx: Queryable,
  reads: ReadColumns,
  { movements, baskets, outcomes }: Decision,
): Promise<readonly string[]> {
  const { rows } = await tx.query<{ ids: string[] }>(
    `select rfid.save(
       row($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)::rfid.new_movements,
       row($12, $13, $14, $15, $16, $17)::rfid.seen_baskets,
       row($18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31)::rfid.new_reads) as ids`,
    [
      binaryTextArray(movements.map((move) => move.tenantId)),
      plainArray(movements.map((move) => move.basketId)),
      binaryTextArray(movements.map((move) => move.epcHex)),
      plainArray(movements.map((move) => move.from)),
      plainArray(movements.map((move) => move.to)),
      timeArray(movements.map((move) => move.at)),
      timeArray(movements.map((move) => move.windowStart)),
      binaryTextArray(movements.map((move) => move.deviceId)),
      plainArray(movements.map((move) => move.repeats || null)),
      timeArray(movements.map((move) => move.lastAt)),
      binaryTextArray(movements.map((move) => move.kind)),
      plainArray(baskets.map((basket) => basket.id)),
      plainArray(baskets.map((basket) => basket.locationId)),
      timeArray(baskets.map((basket) => basket.firstAt)),
      timeArray(baskets.map((basket) => basket.lastSeenAt)),
      binaryTextArray(baskets.map((basket) => basket.deviceId)),
      plainArray(baskets.map(({ movement }) => (movement === null ? null : movement + 1))),
      reads.tenants,
      reads.tagReads,
      reads.hashes,
      reads.processors,
      reads.at,
      plainArray(outcomes.map((outcome) => outcome.basketId)),
      plainArray(outcomes.map(({ movement }) => (typeof movement === 'number' ? movement + 1 : null))),
      plainArray(outcomes.map(({ movement }) => (typeof movement === 'string' ? movement : null))),
      reads.epcs,
      reads.devices,
      reads.locations,
      reads.returns,
      plainArray(outcomes.map((outcome) => outcome.isNewBasket)),
      binaryTextArray(outcomes.map((outcome) => outcome.skipReason)),
    ],
  );
  return rows[0]?.ids ?? [];
}

/** Null stays null. */
export const instant = (at: Micros | null): string | null => (at === null ? null : formatInstant(at));

/** Counts repetitions on the movements that they repeat. */
export async function countRepeats(tx: Queryable, { repetitions }: Decision): Promise<void> {
  if (repetitions.length === 0) return;
  await tx.query('select rfid.count_repeats($1, $2, $3)', [
    plainArray(repetitions.map(({ id }) => id)),
    plainArray(repetitions.map(({ repeats }) => repeats)),
    plainArray(repetitions.map(({ lastAt }) => formatInstant(lastAt))),
  ]);
}
