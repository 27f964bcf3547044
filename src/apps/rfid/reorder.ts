/** What late reads of a basket change: its movements, the verdicts of stored reads, and its state. Pure. */
import type { Micros } from '../../engine/instant.ts';
import type { KnownBasket, MovementRef, NewMovement, Return } from './decide.ts';
import { type Placed, type Retraced, retrace, type StoredMovement, type StoredTrack } from './retrace.ts';
import type { ExaminedRead, SkipReason } from './tag-read.ts';
import { bucketStart, type Kept, type MovementRules } from './track.ts';

/** A movement as it was, or is. */
export interface MovementFacts {
  readonly from: string | null;
  readonly to: string;
  readonly at: Micros;
  readonly deviceId: string;
}

export interface Correction {
  /** A number: an index into the movements of `Reordered`, or of the decision. */
  readonly movement: MovementRef;
  readonly was: MovementFacts | null;
  readonly is: MovementFacts | null;
}

/** What else changes for a basket. */
export interface Reordered {
  readonly id: string;
  readonly tenantId: string;
  readonly epcHex: string;
  readonly locationId: string | null;
  readonly placeId: string | null;
  readonly firstAt: Micros;
  readonly lastSeenAt: Micros;
  /** Null: as it is. */
  readonly deviceId: string | null;
  readonly lastMovement: MovementRef | null;
  readonly changed: readonly Omit<StoredMovement, 'to' | 'at' | 'lastBefore'>[];
  readonly withdrawn: readonly string[];
  readonly judgements: readonly {
    readonly readId: string;
    readonly movement: MovementRef | null;
    readonly skip: SkipReason | null;
  }[];
  readonly corrections: readonly Correction[];
}

export function reorder(
  basket: KnownBasket,
  fresh: readonly ExaminedRead[],
  stored: StoredTrack,
  rules: MovementRules,
): {
  readonly movements: readonly NewMovement[];
  readonly answers: readonly {
    readonly movement: MovementRef | null;
    readonly skipReason: SkipReason | null;
  }[];
  readonly returns: readonly Return[];
  readonly basket: Reordered;
} {
  const retraced = retrace(basket, fresh, stored, rules);
  if (!retraced) throw new Error(`too few reads of basket ${basket.id} were loaded`);
  const { placed, track } = retraced;
  const { tenantId, epcHex } = fresh[0] as ExaminedRead;
  const { lastSeenAt } = basket;
  const isLate = lastSeenAt !== null && (fresh[0] as ExaminedRead).at <= lastSeenAt;

  const movements: NewMovement[] = [];
  const withdrawn: string[] = [];
  const corrections: Correction[] = [];
  /** Stored movements that stay, as they are now. */
  const staying: {
    readonly movement: StoredMovement;
    readonly kept: Kept<Placed>;
    readonly made: boolean;
  }[] = stored.before.map((movement, n) => ({
    movement,
    kept: retraced.kept[n] as Kept<Placed>,
    made: false,
  }));
  let lastMade: MovementRef | null = null;
  for (const [i, { skip, kept }] of track.verdicts.entries()) {
    const one = placed[i] as Placed;
    const made = one.stored?.skip === null ? one.stored.movement : null;
    if (made && skip !== null) {
      withdrawn.push(made.id);
      corrections.push({ movement: made.id, was: factsOf(made, one), is: null });
    }
    if (skip !== null) continue;
    if (made) {
      kept.ref = made.id;
      staying.push({ movement: made, kept, made: true });
      if (made.from !== kept.from)
        corrections.push({ movement: made.id, was: factsOf(made, one), is: factsOf(kept, one) });
    } else {
      const kind =
        lastSeenAt === null && movements.length === 0
          ? 'new'
          : isLate && one.at <= (lastSeenAt as Micros)
            ? 'late'
            : null;
      if (kind === 'late')
        corrections.push({ movement: movements.length, was: null, is: factsOf(kept, one) });
      kept.ref = movements.length;
      movements.push({
        tenantId,
        epcHex,
        basketId: basket.id,
        from: kept.from,
        to: kept.to,
        at: kept.at,
        windowStart: bucketStart(kept.at, rules.window),
        deviceId: one.deviceId,
        repeats: kept.repeats,
        lastAt: kept.lastAt,
        kind,
      });
    }
    lastMade = kept.ref;
  }
  const answers = new Map<string, { movement: MovementRef | null; skipReason: SkipReason | null }>();
  const judgements: { readId: string; movement: MovementRef | null; skip: SkipReason | null }[] = [];
  for (const [i, { skip, kept }] of track.verdicts.entries()) {
    const one = placed[i] as Placed;
    const movement = kept?.ref ?? null;
    if (!one.stored) answers.set(one.contentHash, { movement, skipReason: skip });
    else if (one.stored.skip !== skip || (one.stored.movement?.id ?? null) !== movement)
      judgements.push({ readId: one.stored.id, movement, skip });
  }

  const lastLoaded = stored.reads.at(-1);
  const reached = stored.complete ? Number.POSITIVE_INFINITY : (lastLoaded?.at ?? 0);
  const oldRepeats = new Map<string, number>();
  for (const { stored: read } of placed)
    if (read?.movement && read.skip === 'same movement')
      oldRepeats.set(read.movement.id, (oldRepeats.get(read.movement.id) ?? 0) + 1);
  const changed = staying
    .map(({ movement, kept, made }) => ({
      movement,
      now: {
        id: movement.id,
        from: kept.from,
        windowStart: made ? bucketStart(movement.at, rules.window) : movement.windowStart,
        ...repeatsOf(movement, kept, oldRepeats.get(movement.id) ?? 0, made, reached, rules),
      },
    }))
    .filter(
      ({ movement, now }) =>
        now.from !== movement.from ||
        now.windowStart !== movement.windowStart ||
        now.repeats !== movement.repeats ||
        now.lastAt !== movement.lastAt,
    )
    .map(({ now }) => now);

  const { lastMovement } = basket;
  const unreached = lastMovement !== null && lastMovement.at > reached;
  const last = placed.at(-1) as Placed;
  const isLast = stored.complete && (lastSeenAt === null || last.at >= lastSeenAt);
  return {
    movements,
    answers: fresh.map(({ contentHash }) => answers.get(contentHash) ?? { movement: null, skipReason: null }),
    returns: returnsOf(basket.id, retraced),
    basket: {
      id: basket.id,
      tenantId,
      epcHex,
      locationId: isLast ? last.locationId : basket.locationId,
      placeId: isLast ? (track.place === last.locationId ? null : track.place) : basket.placeId,
      firstAt: (fresh[0] as ExaminedRead).at,
      lastSeenAt: isLast ? last.at : (lastSeenAt ?? last.at),
      deviceId: isLast ? last.deviceId : null,
      lastMovement: unreached ? lastMovement.id : (lastMade ?? stored.before.at(-1)?.id ?? null),
      changed,
      withdrawn,
      judgements,
      corrections,
    },
  };
}

const factsOf = (
  { from, to, at }: { readonly from: string | null; readonly to: string; readonly at: Micros },
  { deviceId }: Placed,
): MovementFacts => ({ from, to, at, deviceId });

/** How often a stored movement is repeated now. `made`: by one of the judged reads, so that all its repetitions lie behind them. */
function repeatsOf(
  movement: StoredMovement,
  kept: Kept<Placed>,
  before: number,
  made: boolean,
  reached: Micros,
  { window }: MovementRules,
): { readonly repeats: number; readonly lastAt: Micros | null } {
  if (made && reached > movement.at && reached - movement.at >= window)
    return { repeats: kept.repeats, lastAt: kept.lastAt };
  const repeats = Math.max(movement.repeats - before + kept.repeats, kept.repeats);
  if (movement.lastAt !== null && movement.lastAt > reached) return { repeats, lastAt: movement.lastAt };
  if (kept.lastAt !== null) return { repeats, lastAt: kept.lastAt };
  return { repeats, lastAt: before === 0 ? movement.lastAt : movement.lastBefore };
}

/**
 * Reads at a return door. A stay there begins with its first read, unless an earlier arrival has begun it: a late read may cut a
 * known stay in two, and then the second one begins anew.
 */
function returnsOf(basketId: string, { placed, startsAt }: Retraced): Return[] {
  if (!placed.some((one) => one.isReturn)) return [];
  const begun = new Set<Placed>();
  let before = startsAt;
  for (const one of placed) {
    if (!one.stored) continue;
    if (one.locationId !== before) begun.add(one);
    before = one.locationId;
  }
  const returns: Return[] = [];
  for (let i = 0; i < placed.length; ) {
    const first = placed[i] as Placed;
    let end = i + 1;
    while (placed[end]?.locationId === first.locationId) end += 1;
    const stay = placed.slice(i, end);
    let isKnown = (i === 0 && first.locationId === startsAt) || stay.some((one) => begun.has(one));
    for (const one of stay) {
      if (!one.isReturn) continue;
      if (!one.stored || !isKnown) returns.push({ basketId, at: one.at, begins: !isKnown });
      isKnown = true;
    }
    i = end;
  }
  return returns;
}
