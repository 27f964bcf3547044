/** The statements of processTagReads: see migrations/0002_process.sql, which has one function for each. */
import type { Queryable } from '../../engine/database/database.ts';
import { formatInstant, type Micros, secondsToMicros } from '../instant.ts';
import { plainArray, textArray } from './array-literal.ts';
import { basketKey, type Decision, type KnownBasket, type Outcome, type Processed } from './decide.ts';
import type { ExaminedRead, FailedRead } from './tag-read.ts';

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

/** The baskets of these reads, made where they were missing, and locked. */
export async function takeBaskets(
  tx: Queryable,
  reads: readonly ExaminedRead[],
): Promise<Map<string, KnownBasket>> {
  const wanted = [...new Map(reads.map((read) => [basketKey(read), read]))];
  const { rows } = await tx.query<BasketRow>('select * from rfid.take_baskets($1, $2, $3)', [
    textArray(wanted.map(([, read]) => read.tenantId)),
    plainArray(wanted.map(([, read]) => read.epcHex)),
    textArray(wanted.map(([, read]) => read.epcUri)),
  ]);
  return new Map(
    rows.map((row) => {
      const [key] = wanted[Number(row.n) - 1] as [string, ExaminedRead];
      return [key, basketOf(row)];
    }),
  );
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

/** Those of the reads that were processed before, by their place. Their baskets have to be locked. */
export async function findProcessed(
  tx: Queryable,
  reads: readonly ExaminedRead[],
): Promise<Map<number, Processed>> {
  const { rows } = await tx.query<{ n: string; basket_id: string | null; movement_id: string | null }>(
    'select * from rfid.processed($1, $2, $3)',
    [
      textArray(reads.map((read) => read.tenantId)),
      plainArray(reads.map((read) => read.contentHash)),
      plainArray(reads.map((read) => read.zbTagReadId)),
    ],
  );
  return new Map(
    rows.map((row) => [Number(row.n) - 1, { basketId: row.basket_id, movementId: row.movement_id }]),
  );
}

/** Writes what was decided, and the reads that failed; answers the ids of the movements. */
export async function record(
  tx: Queryable,
  { movements, baskets, outcomes }: Decision,
  failures: readonly FailedRead[],
): Promise<readonly string[]> {
  const rows = [
    ...outcomes.filter((outcome) => outcome.skipReason !== 'duplicate').map(rowOf),
    ...failures.map(failureRow),
  ];
  if (rows.length === 0) return [];
  const lastMoves = baskets.map(({ movement }) => (movement === null ? undefined : movements[movement]));
  const { rows: answer } = await tx.query<{ ids: string[] }>(
    `select rfid.record($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                        $22, $23, $24, $25, $26, $27, $28, $29, $30) as ids`,
    [
      textArray(movements.map((move) => move.tenantId)),
      plainArray(movements.map((move) => move.basketId)),
      plainArray(movements.map((move) => move.from)),
      plainArray(movements.map((move) => move.to)),
      plainArray(movements.map((move) => formatInstant(move.at))),
      plainArray(movements.map((move) => formatInstant(move.windowStart))),
      textArray(movements.map((move) => move.deviceId)),
      plainArray(baskets.map((basket) => basket.id)),
      textArray(baskets.map((basket) => basket.tenantId)),
      plainArray(baskets.map((basket) => basket.epcHex)),
      plainArray(baskets.map((basket) => basket.locationId)),
      plainArray(baskets.map((basket) => formatInstant(basket.lastSeenAt))),
      textArray(baskets.map((basket) => basket.deviceId)),
      plainArray(baskets.map((basket) => (basket.movement === null ? null : basket.movement + 1))),
      plainArray(lastMoves.map((move) => move?.from ?? null)),
      plainArray(lastMoves.map((move) => move?.to ?? null)),
      plainArray(lastMoves.map((move) => (move ? formatInstant(move.at) : null))),
      textArray(rows.map((row) => row.tenantId)),
      plainArray(rows.map((row) => row.zbTagReadId)),
      plainArray(rows.map((row) => row.contentHash)),
      plainArray(rows.map((row) => row.processorType)),
      plainArray(rows.map((row) => row.timestamp)),
      plainArray(rows.map((row) => row.basketId)),
      plainArray(rows.map(({ movement }) => (typeof movement === 'number' ? movement + 1 : null))),
      plainArray(rows.map(({ movement }) => (typeof movement === 'string' ? movement : null))),
      textArray(rows.map((row) => row.epc)),
      textArray(rows.map((row) => row.deviceId)),
      plainArray(rows.map((row) => row.isNewBasket)),
      textArray(rows.map((row) => row.skipReason)),
      textArray(rows.map((row) => row.error)),
    ],
  );
  return answer[0]?.ids ?? [];
}

/** A row of tag_read_processings. */
interface ProcessingRow extends Pick<Outcome, 'basketId' | 'movement' | 'isNewBasket' | 'skipReason'> {
  readonly tenantId: string;
  readonly zbTagReadId: string | null;
  readonly contentHash: string;
  readonly processorType: string;
  readonly timestamp: string | null;
  readonly epc: string;
  readonly deviceId: string;
  readonly error: string | null;
}

function rowOf({ read, basketId, movement, isNewBasket, skipReason }: Outcome): ProcessingRow {
  return {
    tenantId: read.tenantId,
    zbTagReadId: read.zbTagReadId,
    contentHash: read.contentHash,
    processorType: read.processorType,
    timestamp: read.timestamp,
    epc: read.epcHex,
    deviceId: read.deviceId,
    basketId,
    movement,
    isNewBasket,
    skipReason,
    error: null,
  };
}

/** What is wrong with it may be any of its fields: they are kept as far as the database can keep them. */
function failureRow({ read, contentHash, message, timestamp }: FailedRead): ProcessingRow {
  return {
    tenantId: keepable(read.tenantId) || 'default',
    zbTagReadId: /^\d{1,18}$/.test(String(read.zbTagReadId)) ? String(read.zbTagReadId) : null,
    contentHash,
    processorType: read.processorType === 'Replay' ? 'Replay' : 'MQTT',
    timestamp,
    epc: keepable(read.epc),
    deviceId: keepable(read.deviceId),
    basketId: null,
    movement: null,
    isNewBasket: false,
    skipReason: null,
    error: keepable(message, 1000),
  };
}

const keepable = (value: unknown, longest = 256): string =>
  String(value).replaceAll('\0', '�').slice(0, longest).toWellFormed();
