/**
 * Judges the reads of a basket with late ones in their places. Pure.
 *
 * A read can only affect what happens from `minimumStay` before it: from there on the reads are judged anew, by the rules of track.ts. Stored
 * reads before that keep their verdicts. Behind the last late read the effect ends where basket and movements are the same
 * with the late reads as without them: `reachesFarEnough` tells whether enough stored reads were loaded to see that.
 */
import type { Micros } from '../../engine/instant.ts';
import type { KnownBasket } from './decide.ts';
import { type ExaminedRead, isReturn } from './tag-read.ts';
import {
  follow,
  inEventOrder,
  type Kept,
  lastOfEach,
  type MovementRules,
  pairOf,
  type Sighting,
  type Track,
} from './track.ts';

export interface StoredMovement {
  readonly id: string;
  readonly from: string | null;
  readonly to: string;
  readonly at: Micros;
  readonly windowStart: Micros;
  readonly repeats: number;
  readonly lastAt: Micros | null;
  /** Of a movement before the late reads that has repetitions behind them: its last one before them. */
  readonly lastBefore: Micros | null;
}

export interface StoredRead extends Sighting {
  readonly id: string;
  readonly deviceId: string;
  readonly isReturn: boolean;
  readonly skip: string | null;
  /** The movement that it made, or that it repeats. */
  readonly movement: StoredMovement | null;
}

export interface StoredTrack {
  /** In event order, from `firstNeeded` on. */
  readonly reads: readonly StoredRead[];
  /** There are no more behind them. */
  readonly complete: boolean;
  /** Movements before `judgedFrom`: those that may be repeated, and always the last one. Oldest first. */
  readonly before: readonly StoredMovement[];
}

/**
 * From where reads are judged anew, if the first of the new ones is at this time. A read can end a stay that has not lasted long enough
 * yet: the basket's last one, which began less than `minimumStay` before its last read.
 */
export function judgedFrom({ lastSeenAt }: KnownBasket, at: Micros, { minimumStay }: MovementRules): Micros {
  return minimumStay === 0 ? at : Math.min(at, lastSeenAt ?? at) - minimumStay;
}

/** From where stored reads are needed: a stay that was too short, and reaches the judged ones, began after this. */
export const firstNeeded = (basket: KnownBasket, at: Micros, rules: MovementRules): Micros =>
  judgedFrom(basket, at, rules) - rules.minimumStay;

/** Without the reads of the last instant: there may be others of it that were not loaded. */
export function wholeInstants<R extends { readonly at: Micros }>(reads: readonly R[]): readonly R[] {
  const last = reads.at(-1)?.at;
  return reads.slice(0, reads.findLastIndex(({ at }) => at !== last) + 1);
}

/** A stored read or a new one, in its place. */
export interface Placed extends Sighting {
  readonly deviceId: string;
  readonly isReturn: boolean;
  readonly stored: StoredRead | null;
}

export interface Retraced {
  readonly placed: readonly Placed[];
  readonly track: Track<Placed>;
  readonly kept: readonly Kept<Placed>[];
  /** Where the basket was before the first of them. */
  readonly startsAt: string | null;
  /** Without the new reads: the place at the end, and the id of the last kept movement of each from and to, with its time. */
  readonly oldPlace: string | null;
  readonly oldKept: ReadonlyMap<string, { readonly id: string; readonly at: Micros }>;
}

/** Undefined: more stored reads are needed to tell where the basket was. */
export function retrace(
  basket: KnownBasket,
  fresh: readonly ExaminedRead[],
  { reads, complete, before }: StoredTrack,
  rules: MovementRules,
): Retraced | undefined {
  const from = judgedFrom(basket, (fresh[0] as ExaminedRead).at, rules);
  const begin = reads.findIndex(({ at }) => at >= from);
  const judged = begin < 0 ? [] : reads.slice(begin);
  const frozen = begin < 0 ? reads : reads.slice(0, begin);
  let place = placeBefore(basket, reads, complete, rules);
  if (place === undefined) return undefined;
  for (const read of frozen) if (read.movement) place = read.locationId;
  const lastFrozen = frozen.at(-1);
  const shortStayAt = lastFrozen?.skip === 'short stay' ? lastFrozen.locationId : null;
  const kept = before.map(
    ({ id, from, to, at }): Kept<Placed> => ({
      maker: null,
      ref: id,
      from,
      to,
      at,
      repeats: 0,
      lastAt: null,
    }),
  );
  const placed = [
    ...judged.map((stored): Placed => ({ ...stored, stored })),
    ...fresh.map((read): Placed => ({ ...read, isReturn: isReturn(read), stored: null })),
  ].sort(inEventOrder);
  const track = follow(placed, { place, shortStayAt, kept }, rules);
  let oldPlace: string | null = place;
  const oldKept: Map<string, { readonly id: string; readonly at: Micros }> = lastOfEach(before);
  for (const { movement, skip, locationId } of judged) {
    if (!movement) continue;
    oldPlace = locationId;
    if (skip === null) oldKept.set(pairOf(movement.from, movement.to), movement);
  }
  return { placed, track, kept, startsAt: shortStayAt ?? place, oldPlace, oldKept };
}

/** The basket's place before the first of the stored reads. Undefined: more of them are needed to tell. */
function placeBefore(
  { placeId, locationId }: KnownBasket,
  reads: readonly StoredRead[],
  complete: boolean,
  { minimumStay }: MovementRules,
): string | null | undefined {
  const mover = reads.find(({ movement }) => movement !== null);
  if (mover?.movement) return mover.movement.from;
  // It has not moved since.
  if (complete) return placeId ?? locationId;
  return minimumStay === 0 ? reads[0]?.locationId : undefined;
}

/** Whether what lies behind the loaded reads is the same with the new reads as without them. */
export function reachesFarEnough(
  basket: KnownBasket,
  fresh: readonly ExaminedRead[],
  track: StoredTrack,
  rules: MovementRules,
  atLeast: Micros = 0,
): boolean {
  if (track.complete) return true;
  const retraced = retrace(basket, fresh, track, rules);
  if (!retraced) return false;
  const { placed, oldPlace, oldKept } = retraced;
  const last = placed.at(-1) as Placed;
  const lastNew = placed.findLastIndex(({ stored }) => stored === null);
  const next = placed[lastNew + 1];
  if (!next || last.at < (placed[lastNew] as Placed).at + atLeast) return false;
  if (retraced.track.place !== oldPlace) return false;
  const keptNow = retraced.track.kept ?? lastOfEach(retraced.kept);
  const isYoung = (movement: { readonly at: Micros } | undefined): boolean =>
    movement !== undefined && (last.at - movement.at < rules.window || last.at === movement.at);
  for (const pair of new Set([...keptNow.keys(), ...oldKept.keys()])) {
    const [now, then] = [keptNow.get(pair), oldKept.get(pair)];
    if ((isYoung(now) || isYoung(then)) && (!now || !then || storedId(now) !== then.id)) return false;
  }
  // The last stay has to be the same, or so long that it counts in any case.
  if (rules.minimumStay === 0 || last.at - next.at >= rules.minimumStay) return true;
  const before = placed.findLastIndex(({ locationId }) => locationId !== last.locationId);
  return before > lastNew;
}

/** The id under which a movement was kept before; undefined: it is new. */
function storedId({ maker, ref }: Kept<Placed>): string | undefined {
  if (maker === null) return ref as string;
  return maker.stored?.skip === null ? maker.stored.movement?.id : undefined;
}
