/** A database in memory, as far as decisions can tell: baskets, reads, movements and their key. */
import { decide, isLate, type KnownBasket, needsNoHistory, sortOut } from '../../../src/apps/rfid/decide.ts';
import {
  firstNeeded,
  judgedFrom,
  reachesFarEnough,
  type StoredMovement,
  type StoredRead,
  type StoredTrack,
  wholeInstants,
} from '../../../src/apps/rfid/retrace.ts';
import type { ExaminedRead } from '../../../src/apps/rfid/tag-read.ts';
import { inEventOrder, type MovementRules } from '../../../src/apps/rfid/track.ts';
import type { ModelBasket, ModelMovement } from './model.ts';

interface LedgerRead extends Omit<StoredRead, 'movement'> {
  readonly basketId: string;
  movementId: string | null;
}

type LedgerMovement = Omit<StoredMovement, 'lastBefore'> & {
  readonly basketId: string;
  readonly deviceId: string;
};

type LedgerBasket = Omit<KnownBasket, 'recent'> & { readonly firstAt: number; readonly deviceId: string };

export class Ledger {
  readonly rules: MovementRules;
  /** Stored reads that are loaded at a time. */
  readonly chunk: number;
  /** Whether every read is judged among the stored ones. */
  readonly thorough: boolean;
  readonly told: string[] = [];
  readonly baskets = new Map<string, LedgerBasket>();
  readonly #reads: LedgerRead[] = [];
  #movements = new Map<string, LedgerMovement>();
  #ids = 0;

  constructor(rules: MovementRules, { chunk = 3, thorough = false } = {}) {
    this.rules = rules;
    this.chunk = chunk;
    this.thorough = thorough;
  }

  process(reads: readonly ExaminedRead[]): void {
    const processed = new Map(
      reads.flatMap((read, place) => {
        const found = this.#reads.find(
          ({ contentHash, basketId }) => contentHash === read.contentHash && basketId === read.basketKey,
        );
        return found ? [[place, { basketId: found.basketId, movementId: found.movementId }]] : [];
      }),
    );
    const known = new Map(reads.map((read) => [read.basketKey, this.#known(read.basketKey)]));
    const sorted = sortOut(reads, known, processed);
    const tracks = new Map<string, StoredTrack>();
    for (const { basket, fresh } of sorted.baskets) {
      const own = fresh.map((place) => reads[place] as ExaminedRead);
      if (this.thorough || isLate(basket, own[0] as ExaminedRead) || !needsNoHistory(basket, own, this.rules))
        tracks.set(basket.id, this.#track(basket, own));
    }
    const decision = decide(reads, { sorted, settled: new Map(), tracks }, this.rules);
    for (const { withdrawn, changed } of decision.reordered) {
      for (const id of withdrawn) this.#movements.delete(id);
      for (const one of changed) this.#movements.set(one.id, { ...this.#movement(one.id), ...one });
    }
    const ids = decision.movements.map(
      ({ basketId, from, to, at, windowStart, deviceId, repeats, lastAt }) => {
        const id = String(++this.#ids);
        this.#movements.set(id, { id, basketId, from, to, at, windowStart, deviceId, repeats, lastAt });
        return id;
      },
    );
    const idOf = (ref: string | number | null) => (typeof ref === 'number' ? (ids[ref] as string) : ref);
    for (const { id, repeats, lastAt } of decision.repetitions) {
      const movement = this.#movement(id);
      this.#movements.set(id, { ...movement, repeats: movement.repeats + repeats, lastAt });
    }
    for (const { read, movement, skipReason } of decision.outcomes)
      if (skipReason !== 'duplicate')
        this.#reads.push({
          id: String(this.#reads.length + 1),
          basketId: read.basketKey,
          at: read.at,
          contentHash: read.contentHash,
          locationId: read.locationId,
          deviceId: read.deviceId,
          isReturn: false,
          skip: skipReason,
          movementId: idOf(movement),
        });
    for (const seen of decision.baskets) {
      const before = this.baskets.get(seen.id);
      const moved = seen.movement === null ? null : decision.movements[seen.movement];
      this.baskets.set(seen.id, {
        ...seen,
        placeId: null,
        firstAt: Math.min(before?.firstAt ?? seen.firstAt, seen.firstAt),
        lastMovement: moved
          ? { id: idOf(seen.movement) as string, at: moved.at }
          : (before?.lastMovement ?? null),
      });
    }
    for (const { judgements, lastMovement, ...seen } of decision.reordered) {
      for (const { readId, movement, skip } of judgements) {
        const at = Number(readId) - 1;
        this.#reads[at] = { ...(this.#reads[at] as LedgerRead), movementId: idOf(movement), skip };
      }
      const before = this.baskets.get(seen.id);
      const id = idOf(lastMovement);
      this.baskets.set(seen.id, {
        ...seen,
        deviceId: seen.deviceId ?? before?.deviceId ?? '',
        firstAt: Math.min(before?.firstAt ?? seen.firstAt, seen.firstAt),
        lastMovement: id === null ? null : { id, at: this.#movement(id).at },
      });
      for (const { was, is } of seen.corrections)
        this.told.push(was === null ? 'inserted' : is === null ? 'withdrawn' : 'changed');
    }
    this.#checkKey();
  }

  /** In the model's terms. */
  books(): Map<string, ModelBasket> {
    return new Map(
      [...this.baskets].map(([key, basket]) => {
        const movements = [...this.#movements.values()].filter(({ basketId }) => basketId === key);
        const order = (id: string) => {
          const maker = this.#reads.find((read) => read.movementId === id && read.skip === null);
          return this.#reads
            .filter((read) => read.basketId === key)
            .toSorted(inEventOrder)
            .indexOf(maker as LedgerRead);
        };
        return [
          key,
          {
            place: basket.locationId as string,
            device: basket.deviceId,
            firstSeen: basket.firstAt,
            lastSeen: basket.lastSeenAt as number,
            movements: movements
              .toSorted((a, b) => order(a.id) - order(b.id))
              .map(
                ({ from, to, at, deviceId, repeats, lastAt }): ModelMovement => ({
                  from,
                  to,
                  at,
                  device: deviceId,
                  repeats,
                  lastAt,
                }),
              ),
            verdicts: Object.fromEntries(
              this.#reads
                .filter(({ basketId }) => basketId === key)
                .map((read) => [read.contentHash, read.skip]),
            ),
          },
        ];
      }),
    );
  }

  #movement(id: string): LedgerMovement {
    const found = this.#movements.get(id);
    if (!found) throw new Error(`there is no movement ${id}`);
    return found;
  }

  #known(key: string): KnownBasket {
    const basket = this.baskets.get(key);
    if (!basket)
      return { id: key, locationId: null, placeId: null, lastSeenAt: null, lastMovement: null, recent: [] };
    const recent = [...this.#movements.values()]
      .filter(({ basketId }) => basketId === key)
      .toSorted((a, b) => a.at - b.at);
    return { ...basket, recent };
  }

  #track(basket: KnownBasket, fresh: readonly ExaminedRead[]): StoredTrack {
    const { at } = fresh[0] as ExaminedRead;
    const stored = this.#reads
      .filter((read) => read.basketId === basket.id && read.at >= firstNeeded(basket, at, this.rules))
      .toSorted(inEventOrder)
      .map(({ movementId, ...read }): StoredRead => {
        const movement = movementId === null ? null : { ...this.#movement(movementId), lastBefore: null };
        return { ...read, movement };
      });
    const from = judgedFrom(basket, at, this.rules);
    const earlier = [...this.#movements.values()]
      .filter((one) => one.basketId === basket.id && one.at < from)
      .toSorted((a, b) => a.at - b.at);
    const before = earlier
      .filter((one, i) => one.at > from - this.rules.window || i === earlier.length - 1)
      .map((one): StoredMovement => {
        const repeats = this.#reads.filter(
          (read) => read.movementId === one.id && read.skip === 'same movement' && read.at < from,
        );
        return {
          ...one,
          lastBefore: repeats.length === 0 ? null : Math.max(...repeats.map((read) => read.at)),
        };
      });
    for (let limit = this.chunk; ; limit += this.chunk) {
      const complete = stored.length < limit;
      const loaded = stored.slice(0, limit);
      const track = { reads: complete ? loaded : wholeInstants(loaded), complete, before };
      if (reachesFarEnough(basket, fresh, track, this.rules)) return track;
    }
  }

  #checkKey(): void {
    const keys = [...this.#movements.values()].map((one) =>
      [one.basketId, one.from, one.to, one.windowStart].join('/'),
    );
    if (new Set(keys).size < keys.length) throw new Error('movements_once is violated');
  }
}
