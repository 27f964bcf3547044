/**
 * Decides what reads do to baskets. Pure; the same reads in any batches and in any order end in the same baskets and movements.
 * Reads that are newer than everything known of their basket need its state alone (here); others need its reads around them
 * (retrace.ts, reorder.ts). Both follow the rules in track.ts.
 */
import type { Micros } from '../../engine/instant.ts';
import { type Reordered, reorder } from './reorder.ts';
import type { StoredTrack } from './retrace.ts';
import { type ExaminedRead, isReturn, type SkipReason } from './tag-read.ts';
import { bucketStart, follow, inEventOrder, type Kept, type MovementRules, type Verdict } from './track.ts';

export interface RecentMovement {
  readonly id: string;
  readonly from: string | null;
  readonly to: string;
  readonly at: Micros;
}

export interface KnownBasket {
  readonly id: string;
  readonly locationId: string | null;
  /** Where it counts as being, if that is not where it was last seen. */
  readonly placeId: string | null;
  /** Null: it is new. */
  readonly lastSeenAt: Micros | null;
  readonly lastMovement: { readonly id: string; readonly at: Micros } | null;
  /** Movements that the reads may repeat, oldest first. */
  readonly recent: readonly RecentMovement[];
}

/** What an earlier read of the same content did. */
export interface Processed {
  readonly basketId: string | null;
  readonly movementId: string | null;
}

/** A string: the id of a stored movement. A number: an index into `Decision.movements`. */
export type MovementRef = string | number;

export interface NewMovement {
  readonly tenantId: string;
  readonly epcHex: string;
  readonly basketId: string;
  readonly from: string | null;
  readonly to: string;
  readonly at: Micros;
  readonly windowStart: Micros;
  readonly deviceId: string;
  readonly repeats: number;
  readonly lastAt: Micros | null;
  /** `new`: the first of a new basket. `late`: put between reads that were known. */
  readonly kind: 'new' | 'late' | null;
}

/** A basket that was seen in order: its state after the batch. */
export interface SeenBasket {
  readonly id: string;
  readonly locationId: string;
  readonly firstAt: Micros;
  readonly lastSeenAt: Micros;
  readonly deviceId: string;
  /** The last one it made in this batch. */
  readonly movement: number | null;
}

/** Repetitions of a stored movement. */
export interface Repetition {
  readonly id: string;
  readonly repeats: number;
  readonly lastAt: Micros;
}

export interface Outcome {
  readonly read: ExaminedRead;
  readonly basketId: string | null;
  readonly movement: MovementRef | null;
  readonly isNewBasket: boolean;
  readonly skipReason: SkipReason | null;
  /** Told with the first read of a basket: how many movements its reads changed or withdrew. */
  readonly corrections?: number;
}

/** A read at a return door. `begins`: the basket came there with it. */
export interface Return {
  readonly basketId: string;
  readonly at: Micros;
  readonly begins: boolean;
}

export interface Decision {
  readonly movements: readonly NewMovement[];
  readonly baskets: readonly SeenBasket[];
  readonly repetitions: readonly Repetition[];
  readonly returns: readonly Return[];
  /** Baskets whose reads were put in order. */
  readonly reordered: readonly Reordered[];
  /** One for each read, in their order. Duplicates are answered, not recorded. */
  readonly outcomes: readonly Outcome[];
}

/** What is known of the reads of one basket in a batch. */
export interface BasketReads {
  readonly basket: KnownBasket;
  /** Indexes into the batch of those that were not processed before, in event order. */
  readonly fresh: readonly number[];
}

/** A batch, sorted out: duplicates by index, the others by basket. */
export interface Sorted {
  readonly duplicates: ReadonlyMap<number, Processed | number>;
  readonly baskets: readonly BasketReads[];
}

/**
 * Indexes of the reads that may have been processed before. A processed read set its basket's last time to its own time or
 * later, so a read newer than that is new. The id of a tag read does not tell this.
 */
export function perhapsProcessed(
  reads: readonly ExaminedRead[],
  baskets: ReadonlyMap<string, KnownBasket>,
): number[] {
  const places: number[] = [];
  for (const [place, { basketKey, at, zbTagReadId }] of reads.entries()) {
    const lastSeenAt = baskets.get(basketKey)?.lastSeenAt ?? null;
    if (zbTagReadId !== null || (lastSeenAt !== null && at <= lastSeenAt)) places.push(place);
  }
  return places;
}

export function sortOut(
  reads: readonly ExaminedRead[],
  known: ReadonlyMap<string, KnownBasket>,
  processed: ReadonlyMap<number, Processed>,
): Sorted {
  const duplicates = new Map<number, Processed | number>();
  const first = new Map<string, number>();
  const fresh = new Map<string, number[]>();
  for (const [place, read] of reads.entries()) {
    const idKey = read.zbTagReadId === null ? undefined : `#${read.zbTagReadId} ${read.tenantId}`;
    const before =
      processed.get(place) ??
      first.get(read.contentKey) ??
      (idKey === undefined ? undefined : first.get(idKey));
    if (before !== undefined) {
      duplicates.set(place, before);
      continue;
    }
    first.set(read.contentKey, place);
    if (idKey !== undefined) first.set(idKey, place);
    const own = fresh.get(read.basketKey);
    if (own) own.push(place);
    else fresh.set(read.basketKey, [place]);
  }
  const baskets = [...fresh].map(([key, places]): BasketReads => {
    const basket = known.get(key);
    if (!basket) throw new Error(`basket ${key} was not loaded`);
    for (let i = 1; i < places.length; i += 1)
      // Mostly they are in order.
      if (
        inEventOrder(
          reads[places[i - 1] as number] as ExaminedRead,
          reads[places[i] as number] as ExaminedRead,
        ) > 0
      ) {
        places.sort((a, b) => inEventOrder(reads[a] as ExaminedRead, reads[b] as ExaminedRead));
        break;
      }
    return { basket, fresh: places };
  });
  return { duplicates, baskets };
}

/** Reads that are not behind everything known of their basket. */
export const isLate = ({ lastSeenAt }: KnownBasket, { at }: ExaminedRead): boolean =>
  lastSeenAt !== null && at <= lastSeenAt;

/** Whether the basket's state is enough to decide reads that are newer than it. */
export function needsNoHistory(
  { placeId, locationId }: KnownBasket,
  inOrder: readonly ExaminedRead[],
  { minimumStay }: MovementRules,
): boolean {
  if (placeId !== null) return false;
  if (minimumStay === 0) return true;
  // Whether a stay counts is known later: with a minimum, every change of place is decided from the reads.
  const place = locationId ?? inOrder[0]?.locationId;
  return inOrder.every((read) => read.locationId === place);
}

export interface Findings {
  readonly sorted: Sorted;
  /** Late reads that change nothing, because of what they lie between; and those from beyond the horizon. By index. */
  readonly settled: ReadonlyMap<number, 'same location' | 'short stay' | 'stale'>;
  /** The stored reads and movements of baskets that need them, by the id of the basket. */
  readonly tracks: ReadonlyMap<string, StoredTrack>;
}

export function decide(
  reads: readonly ExaminedRead[],
  { sorted, settled, tracks }: Findings,
  rules: MovementRules,
): Decision {
  const outcomes: Outcome[] = new Array(reads.length);
  const movements: NewMovement[] = [];
  const baskets: SeenBasket[] = [];
  const repetitions: Repetition[] = [];
  const returns: Return[] = [];
  const reordered: Reordered[] = [];

  for (const { basket, fresh } of sorted.baskets) {
    const open = settled.size === 0 ? fresh : fresh.filter((place) => !settled.has(place));
    const track = tracks.get(basket.id);
    if (track) putInOrder(basket, open, track);
    else if (open.length > 0) goOn(basket, open);
    if (open.length < fresh.length) for (const place of fresh) answerSettled(place, basket);
  }
  for (const [place, before] of sorted.duplicates) {
    const twin = typeof before === 'number' ? (outcomes[before] as Outcome) : undefined;
    const { basketId, movementId } =
      typeof before === 'number'
        ? { basketId: twin?.basketId ?? null, movementId: twin?.movement ?? null }
        : before;
    outcomes[place] = {
      read: reads[place] as ExaminedRead,
      basketId,
      movement: movementId,
      isNewBasket: false,
      skipReason: 'duplicate',
    };
  }
  return { movements, baskets, repetitions, returns, reordered, outcomes };

  function answer(
    place: number,
    basket: KnownBasket,
    movement: MovementRef | null,
    skipReason: SkipReason | null,
    isNewBasket: boolean,
  ): Outcome {
    return { read: reads[place] as ExaminedRead, basketId: basket.id, movement, isNewBasket, skipReason };
  }

  /** A settled read begins no stay, but the basket was at the door. */
  function answerSettled(place: number, basket: KnownBasket): void {
    const skip = settled.get(place);
    if (skip === undefined) return;
    const outcome = answer(place, basket, null, skip, false);
    outcomes[place] = outcome;
    if (isReturn(outcome.read)) returns.push({ basketId: basket.id, at: outcome.read.at, begins: false });
  }

  /** Reads that are newer than the basket's last one. */
  function goOn(basket: KnownBasket, places: readonly number[]): void {
    const own = places.map((place) => reads[place] as ExaminedRead);
    const kept = basket.recent.map(keptBefore);
    const { verdicts } = follow(own, { place: basket.locationId, shortStayAt: null, kept }, rules);
    const base = movements.length;
    for (let i = 0; i < own.length; i += 1) {
      const place = places[i] as number;
      const read = own[i] as ExaminedRead;
      const { skip, kept: movement } = verdicts[i] as Verdict<ExaminedRead>;
      const isNew = i === 0 && basket.lastSeenAt === null;
      if (skip === null) {
        movement.ref = movements.length;
        movements.push({
          tenantId: read.tenantId,
          epcHex: read.epcHex,
          basketId: basket.id,
          from: movement.from,
          to: movement.to,
          at: movement.at,
          windowStart: bucketStart(movement.at, rules.window),
          deviceId: read.deviceId,
          repeats: movement.repeats,
          lastAt: movement.lastAt,
          kind: isNew ? 'new' : null,
        });
      }
      outcomes[place] = answer(place, basket, movement === null ? null : movement.ref, skip, isNew);
      if (isReturn(read)) {
        const before = i === 0 ? basket.locationId : own[i - 1]?.locationId;
        returns.push({ basketId: basket.id, at: read.at, begins: before !== read.locationId });
      }
    }
    for (const { ref, repeats, lastAt } of kept)
      if (lastAt !== null) repetitions.push({ id: ref as string, repeats, lastAt });
    const last = own[own.length - 1] as ExaminedRead;
    baskets.push({
      id: basket.id,
      locationId: last.locationId,
      firstAt: (own[0] as ExaminedRead).at,
      lastSeenAt: last.at,
      deviceId: last.deviceId,
      movement: movements.length > base ? movements.length - 1 : null,
    });
  }

  function putInOrder(basket: KnownBasket, places: readonly number[], track: StoredTrack): void {
    const result = reorder(
      basket,
      places.map((place) => reads[place] as ExaminedRead),
      track,
      rules,
    );
    const base = movements.length;
    movements.push(...result.movements);
    const ref = (one: MovementRef | null): MovementRef | null => (typeof one === 'number' ? base + one : one);
    for (const [i, { movement, skipReason }] of result.answers.entries()) {
      const place = places[i] as number;
      const isFirst = i === 0;
      const outcome = answer(place, basket, ref(movement), skipReason, isFirst && basket.lastSeenAt === null);
      const corrections = isFirst ? result.basket.corrections.length : 0;
      outcomes[place] = corrections > 0 ? { ...outcome, corrections } : outcome;
    }
    returns.push(...result.returns);
    reordered.push({
      ...result.basket,
      judgements: result.basket.judgements.map((one) => ({ ...one, movement: ref(one.movement) })),
      corrections: result.basket.corrections.map((one) => ({
        ...one,
        movement: ref(one.movement) as MovementRef,
      })),
      lastMovement: ref(result.basket.lastMovement),
    });
  }
}

const keptBefore = ({ id, from, to, at }: RecentMovement): Kept<ExaminedRead> => ({
  maker: null,
  ref: id,
  from,
  to,
  at,
  repeats: 0,
  lastAt: null,
});
