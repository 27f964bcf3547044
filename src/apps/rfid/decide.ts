/**
 * Decides what reads do to baskets. Pure; a batch gives the same result as its reads one after another.
 * A basket is where it was last seen. A read at another place moves it, if the read is newer than the basket's last one.
 * The first read moves it from nowhere. The same movement again within five minutes counts as one movement.
 * A movement is stored once per window. A window begins with its bucket of five minutes or with the basket's previous
 * movement, whichever is later. So two decisions from the same state land in the same window and collide there, while
 * A→B, B→A, A→B, however fast, fall into three windows. The times of a basket's movements strictly increase.
 */
import { type Micros, secondsToMicros } from '../../engine/instant.ts';
import type { ExaminedRead, SkipReason } from './tag-read.ts';

export const windowLength: Micros = 5 * 60 * secondsToMicros;

export interface LastMovement {
  readonly id: MovementRef;
  readonly from: string | null;
  readonly to: string;
  readonly at: Micros;
}

export interface KnownBasket {
  readonly id: string;
  readonly locationId: string | null;
  /** Null: it is new. */
  readonly lastSeenAt: Micros | null;
  readonly lastMovement: LastMovement | null;
}

/** What an earlier read of the same content did. */
export interface Processed {
  readonly basketId: string | null;
  readonly movementId: string | null;
}

export interface Known {
  /** Every basket of the reads, by `basketKey` of the reads. */
  readonly baskets: ReadonlyMap<string, KnownBasket>;
  /** Reads processed before, by their place in the batch. */
  readonly processed: ReadonlyMap<number, Processed>;
}

/** A string: the id of a stored movement. A number: an index into `Decision.movements`. */
export type MovementRef = string | number;

export interface NewMovement {
  readonly tenantId: string;
  readonly basketId: string;
  readonly from: string | null;
  readonly to: string;
  readonly at: Micros;
  readonly windowStart: Micros;
  readonly deviceId: string;
}

/** A basket that was seen: its state after the batch. */
export interface SeenBasket {
  readonly id: string;
  readonly tenantId: string;
  readonly epcHex: string;
  readonly locationId: string;
  readonly lastSeenAt: Micros;
  readonly deviceId: string;
  /** The last one it made in this batch. */
  readonly movement: number | null;
}

export interface Outcome {
  readonly read: ExaminedRead;
  readonly basketId: string | null;
  readonly movement: MovementRef | null;
  readonly isNewBasket: boolean;
  readonly skipReason: SkipReason | null;
}

export interface Decision {
  readonly movements: readonly NewMovement[];
  readonly baskets: readonly SeenBasket[];
  /** One for each read, in their order. Duplicates are answered, not recorded. */
  readonly outcomes: readonly Outcome[];
}

interface BasketState {
  readonly id: string;
  readonly tenantId: string;
  readonly epcHex: string;
  locationId: string | null;
  lastSeenAt: Micros | null;
  lastMovement: LastMovement | null;
  deviceId: string;
  movement: number | null;
  seen: boolean;
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

export function decide(reads: readonly ExaminedRead[], known: Known): Decision {
  const states = new Map<string, BasketState>();
  const movements: NewMovement[] = [];
  const first = new Map<string, Outcome>();

  const outcomes = reads.map((read, place): Outcome => {
    const processed = known.processed.get(place);
    if (processed) return repeated(read, processed.basketId, processed.movementId);
    const idKey = read.zbTagReadId === null ? undefined : `#${read.zbTagReadId} ${read.tenantId}`;
    const twin = first.get(read.contentKey) ?? (idKey === undefined ? undefined : first.get(idKey));
    if (twin) return repeated(read, twin.basketId, twin.movement);
    const outcome = see(read, stateOf(read, states, known), movements);
    first.set(read.contentKey, outcome);
    if (idKey !== undefined) first.set(idKey, outcome);
    return outcome;
  });
  return { movements, baskets: [...states.values()].filter((state) => state.seen).map(seenBasket), outcomes };
}

/** Moves the basket along by one read. */
function see(read: ExaminedRead, basket: BasketState, movements: NewMovement[]): Outcome {
  const { locationId: from, lastSeenAt, lastMovement } = basket;
  const answer = (movement: MovementRef | null, skipReason: SkipReason | null): Outcome => ({
    read,
    basketId: basket.id,
    movement,
    isNewBasket: lastSeenAt === null,
    skipReason,
  });
  if (lastSeenAt !== null && read.at < lastSeenAt) return answer(null, 'stale');
  const stays = from === read.locationId;
  // Two places at the same instant: the first read wins.
  if (!stays && read.at === lastSeenAt) return answer(null, 'stale');
  basket.seen = true;
  basket.lastSeenAt = read.at;
  basket.deviceId = read.deviceId;
  if (stays) return answer(null, 'same location');
  basket.locationId = read.locationId;
  if (lastMovement && isSame(lastMovement, from, read)) return answer(lastMovement.id, 'same movement');
  const place = movements.length;
  const windowStart = Math.max(bucketStart(read.at), lastMovement?.at ?? 0);
  movements.push({
    tenantId: read.tenantId,
    basketId: basket.id,
    from,
    to: read.locationId,
    at: read.at,
    windowStart,
    deviceId: read.deviceId,
  });
  basket.movement = place;
  basket.lastMovement = { id: place, from, to: read.locationId, at: read.at };
  return answer(place, null);
}

/** Buckets are counted from 1970: all of them begin on minutes that five divides, in UTC. */
export const bucketStart = (at: Micros): Micros => at - (at % windowLength);

function isSame(last: LastMovement, from: string | null, read: ExaminedRead): boolean {
  return last.from === from && last.to === read.locationId && read.at - last.at < windowLength;
}

const repeated = (read: ExaminedRead, basketId: string | null, movement: MovementRef | null): Outcome => ({
  read,
  basketId,
  movement,
  isNewBasket: false,
  skipReason: 'duplicate',
});

function stateOf(read: ExaminedRead, states: Map<string, BasketState>, known: Known): BasketState {
  const state = states.get(read.basketKey);
  if (state) return state;
  const basket = known.baskets.get(read.basketKey);
  if (!basket) throw new Error(`basket ${read.epcHex} of tenant ${read.tenantId} was not loaded`);
  const { tenantId, epcHex } = read;
  const fresh: BasketState = { ...basket, tenantId, epcHex, deviceId: '', movement: null, seen: false };
  states.set(read.basketKey, fresh);
  return fresh;
}

function seenBasket({
  id,
  tenantId,
  epcHex,
  locationId,
  lastSeenAt,
  deviceId,
  movement,
}: BasketState): SeenBasket {
  // Both were set when it was seen.
  return {
    id,
    tenantId,
    epcHex,
    locationId: locationId as string,
    lastSeenAt: lastSeenAt as Micros,
    deviceId,
    movement,
  };
}
