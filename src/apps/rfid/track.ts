/**
 * The rules of movements, for the reads of one basket in the order of their event times. Pure.
 *
 * Consecutive reads at one place are a stay. It lasts until the first read elsewhere; the last stay until its last read. A stay
 * counts if it is the basket's first, or lasts at least `minimumStay`. The basket's place is that of its last stay that counted. A
 * stay that counts, at another place, is a movement at the time of its first read. It repeats the last kept movement with
 * the same from and to, if that was less than `window` ago, and is then counted there; otherwise it is kept.
 * docs/decisions/0020-movements-by-event-time.md says why.
 */
import type { Micros } from '../../engine/instant.ts';
import { defaultMovementWindowMs } from './config.ts';

export interface MovementRules {
  /** The same movement again within this is a repetition. 0 keeps every movement. */
  readonly window: Micros;
  /** A shorter stay is no movement. */
  readonly minimumStay: Micros;
}

export const defaultRules: MovementRules = { window: defaultMovementWindowMs * 1000, minimumStay: 0 };

/** A read, as far as movements depend on it. */
export interface Sighting {
  readonly at: Micros;
  /** Orders reads of the same instant. */
  readonly contentHash: string;
  readonly locationId: string;
}

/** By event time; reads of the same instant by content hash, so that their order does not depend on their arrival. */
export const inEventOrder = (a: Sighting, b: Sighting): number =>
  a.at - b.at || (a.contentHash < b.contentHash ? -1 : a.contentHash > b.contentHash ? 1 : 0);

/** A movement that was kept, with the repetitions that were added to it. */
export interface Kept<Maker> {
  /** Null: it was stored before. */
  readonly maker: Maker | null;
  /** Its id, if it is stored; the index of a new one, once it has one. */
  ref: string | number | null;
  readonly from: string | null;
  readonly to: string;
  readonly at: Micros;
  repeats: number;
  lastAt: Micros | null;
}

/** The state before the first of the reads. */
export interface TrackStart<Maker> {
  /** Null: it was never seen. */
  readonly place: string | null;
  /** Where the basket was on a stay that ended too soon to count; reads that continue it do not count, either. */
  readonly shortStayAt: string | null;
  /** Kept before, oldest first; at least those younger than the window. */
  readonly kept: readonly Kept<Maker>[];
}

export type Verdict<Maker> =
  | { readonly skip: null | 'same movement'; readonly kept: Kept<Maker> }
  | { readonly skip: 'same location' | 'short stay'; readonly kept: null };

export interface Track<Maker> {
  /** One for each read. */
  readonly verdicts: readonly Verdict<Maker>[];
  readonly place: string | null;
  /** The last one kept of each from and to; undefined: as at the start. */
  readonly kept: ReadonlyMap<string, Kept<Maker>> | undefined;
}

const sameLocation = { skip: 'same location', kept: null } as const;
const shortStay = { skip: 'short stay', kept: null } as const;

export const pairOf = (from: string | null, to: string): string => `${from} ${to}`;

/** What becomes of these reads, which must be in event order. */
export function follow<R extends Sighting>(
  reads: readonly R[],
  start: TrackStart<R>,
  { window, minimumStay }: MovementRules,
): Track<R> {
  // Made when it is needed: most reads move nothing.
  let kept: Map<string, Kept<R>> | undefined;
  const verdicts: Verdict<R>[] = [];
  let { place } = start;
  for (let i = 0; i < reads.length; ) {
    const first = reads[i] as R;
    let end = i + 1;
    while (reads[end]?.locationId === first.locationId) end += 1;
    const stay = (reads[end] ?? (reads[end - 1] as R)).at - first.at;
    const continuesShort = i === 0 && start.shortStayAt === first.locationId;
    let others: Verdict<R> = sameLocation;
    if (first.locationId !== place) {
      if (place === null || (stay >= minimumStay && !continuesShort)) {
        verdicts.push(move(first, place));
        place = first.locationId;
        i += 1;
      } else others = shortStay;
    }
    for (; i < end; i += 1) verdicts.push(others);
  }
  return { verdicts, place, kept };

  function move(read: R, from: string | null): Verdict<R> {
    kept ??= lastOfEach(start.kept);
    const pair = pairOf(from, read.locationId);
    const last = kept.get(pair);
    // With no window, twice at one instant is still once: the key of a movement has its time.
    if (last && (read.at - last.at < window || read.at === last.at)) {
      last.repeats += 1;
      last.lastAt = read.at;
      return { skip: 'same movement', kept: last };
    }
    const { locationId: to, at } = read;
    const movement = { maker: read, ref: null, from, to, at, repeats: 0, lastAt: null };
    kept.set(pair, movement);
    return { skip: null, kept: movement };
  }
}

/** Of movements, oldest first: the last one of each from and to. */
export const lastOfEach = <M extends { readonly from: string | null; readonly to: string }>(
  movements: readonly M[],
): Map<string, M> => new Map(movements.map((movement) => [pairOf(movement.from, movement.to), movement]));

/** Where the window of a time begins: buckets are counted from 1970, so those of five minutes begin on every fifth minute of UTC. */
export const bucketStart = (at: Micros, window: Micros): Micros => (window === 0 ? at : at - (at % window));
