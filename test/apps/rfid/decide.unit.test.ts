import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  bucketStart,
  decide,
  type Known,
  type KnownBasket,
  type LastMovement,
  type NewMovement,
  type Outcome,
  type Processed,
  windowLength,
} from '../../../src/apps/rfid/decide.ts';
import { basketKeyOf, contentKeyOf, type ExaminedRead } from '../../../src/apps/rfid/tag-read.ts';
import { Model } from './model.ts';

const second = 1_000_000;
const start = Date.UTC(2026, 2, 1, 12) * 1000;

function read(at: number, locationId: string, more: Partial<ExaminedRead> = {}): ExaminedRead {
  const { epcHex = 'E1', deviceId = `at ${locationId}`, tenantId = 't' } = more;
  return {
    tenantId,
    zbTagReadId: null,
    epcHex,
    epcUri: '',
    role: 'reader',
    deviceId,
    locationId,
    at,
    timestamp: String(at),
    contentHash: `${deviceId}|${epcHex}|${at}`,
    basketKey: basketKeyOf(tenantId, epcHex),
    contentKey: contentKeyOf(tenantId, `${deviceId}|${epcHex}|${at}`),
    processorType: 'MQTT',
    ...more,
  };
}

/** A database in memory, as far as `decide` can tell: baskets, keys, and the constraint on movements. */
class Ledger {
  readonly movements: NewMovement[] = [];
  readonly #baskets = new Map<string, KnownBasket>();
  readonly #keys = new Map<string, Processed>();
  readonly #windows = new Set<string>();

  process(reads: readonly ExaminedRead[]): string[] {
    const processed = new Map<number, Processed>();
    for (const [place, one] of reads.entries()) {
      const before = keys(one)
        .map((key) => this.#keys.get(key))
        .find((found) => found);
      if (before) processed.set(place, before);
    }
    const baskets = new Map(reads.map((one) => [one.basketKey, this.#basket(one.basketKey)]));
    const known: Known = { baskets, processed };
    const decision = decide(reads, known);
    const base = this.movements.length;
    const id = (ref: string | number) => (typeof ref === 'number' ? String(base + ref) : ref);
    for (const move of decision.movements) {
      const window = [move.tenantId, move.basketId, move.from, move.to, move.windowStart].join('/');
      if (this.#windows.has(window)) throw new Error(`movement twice in a window: ${window}`);
      this.#windows.add(window);
      this.movements.push(move);
    }
    for (const seen of decision.baskets) {
      const key = basketKeyOf(seen.tenantId, seen.epcHex);
      const made = seen.movement === null ? undefined : decision.movements[seen.movement];
      const lastMovement: LastMovement | null = made
        ? { id: id(seen.movement as number), from: made.from, to: made.to, at: made.at }
        : this.#basket(key).lastMovement;
      this.#baskets.set(key, {
        id: seen.id,
        locationId: seen.locationId,
        lastSeenAt: seen.lastSeenAt,
        lastMovement,
      });
    }
    for (const { read: one, basketId, movement, skipReason } of decision.outcomes)
      if (skipReason !== 'duplicate')
        for (const key of keys(one))
          this.#keys.set(key, { basketId, movementId: movement === null ? null : id(movement) });
    return decision.outcomes.map(word);
  }

  #basket(key: string): KnownBasket {
    return this.#baskets.get(key) ?? { id: key, locationId: null, lastSeenAt: null, lastMovement: null };
  }
}

const keys = ({ tenantId, contentHash, zbTagReadId }: ExaminedRead): string[] => [
  `${tenantId}/${contentHash}`,
  ...(zbTagReadId === null ? [] : [`${tenantId}#${zbTagReadId}`]),
];
const word = ({ skipReason, isNewBasket }: Outcome): string => skipReason ?? (isNewBasket ? 'new' : 'moved');
const path = (moves: readonly { from: string | null | undefined; to: string }[]): string[] =>
  moves.map(({ from, to }) => `${from ?? ''}→${to}`);

describe('decide', () => {
  test('RFID-6: the first sighting is a movement from nowhere', () => {
    const ledger = new Ledger();
    expect(ledger.process([read(start, 'A')])).toEqual(['new']);
    expect(ledger.movements).toMatchObject([{ from: null, to: 'A', windowStart: start }]);
  });

  test('RFID-6: at two places at one instant, the first word stands', () => {
    const ledger = new Ledger();
    expect(ledger.process([read(start, 'A'), read(start, 'B'), read(start + 1, 'B')])).toEqual([
      'new',
      'stale',
      'moved',
    ]);
  });

  test('RFID-7: buckets begin on every fifth minute of UTC', () => {
    for (const minute of [0, 5, 55]) {
      const edge = Date.UTC(2026, 2, 1, 23, minute) * 1000;
      expect([bucketStart(edge - 1), bucketStart(edge), bucketStart(edge + windowLength - 1)]).toEqual([
        edge - windowLength,
        edge,
        edge,
      ]);
    }
  });

  test('RFID-7: A→B→A→B inside five minutes, in one bucket and across an edge', () => {
    for (const from of [start, start + windowLength - 2 * second]) {
      const ledger = new Ledger();
      ledger.process(['A', 'B', 'A', 'B'].map((place, i) => read(from + i * second, place)));
      expect(path(ledger.movements)).toEqual(['→A', 'A→B', 'B→A', 'A→B']);
    }
  });

  test('RFID-7: whoever decides twice from one state lands in one window', () => {
    const basket: KnownBasket = {
      id: '1',
      locationId: 'A',
      lastSeenAt: start,
      lastMovement: { id: '9', from: null, to: 'A', at: start },
    };
    const known = { baskets: new Map([[read(0, 'B').basketKey, basket]]), processed: new Map() };
    const [one] = decide([read(start + second, 'B')], known).movements;
    const [other] = decide([read(start + 2 * second, 'B')], known).movements;
    expect(one?.windowStart).toBe(other?.windowStart);
  });

  test('RFID-4: any reads in any batches do what the rules say of them one by one', () => {
    const one = fc
      .record({
        epcHex: fc.constantFrom('E1', 'E2', 'E3'),
        place: fc.constantFrom('A', 'B', 'C'),
        tenantId: fc.constantFrom('t', 'u'),
        // Close together, so that they meet: duplicates, ties, late ones, edges of buckets.
        at: fc.oneof(
          fc.integer({ min: 0, max: 12 }).map((n) => n * second),
          fc.integer({ min: 0, max: 40 }).map((n) => n * 30 * second),
          fc.constantFrom(windowLength - 1, windowLength, windowLength + 1, 2 * windowLength - 1),
        ),
        zbTagReadId: fc.option(fc.integer({ min: 1, max: 40 }).map(String), { freq: 3 }),
      })
      .map(({ place, at, ...more }) => read(start + at, place, more));
    const batches = fc.array(fc.array(one, { maxLength: 12 }), { maxLength: 8 });
    fc.assert(
      fc.property(batches, (given) => {
        const model = new Model();
        const ledger = new Ledger();
        for (const batch of given) expect(ledger.process(batch)).toEqual(batch.map((r) => model.process(r)));
        for (const [key, basket] of model.baskets) {
          const [tenantId, epcHex] = key.split('/') as [string, string];
          const own = ledger.movements.filter((move) => move.basketId === basketKeyOf(tenantId, epcHex));
          expect(path(own)).toEqual(path(basket.moves));
        }
      }),
      { numRuns: 1000 },
    );
  });
});
