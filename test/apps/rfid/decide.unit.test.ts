import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { basketKeyOf, contentKeyOf, type ExaminedRead } from '../../../src/apps/rfid/tag-read.ts';
import { bucketStart, defaultRules, type MovementRules } from '../../../src/apps/rfid/track.ts';
import { Ledger } from './ledger.ts';
import { type ModelBasket, model } from './model.ts';

const second = 1_000_000;
const start = Date.UTC(2026, 2, 1, 12) * 1000;
const { window } = defaultRules;

function read(at: number, locationId: string, more: Partial<ExaminedRead> = {}): ExaminedRead {
  const { epcHex = 'E1', deviceId = `at ${locationId}`, tenantId = 't' } = more;
  const hash = `${deviceId}|${epcHex}|${at}`;
  return {
    tenantId,
    zbTagReadId: null,
    epcHex,
    epcUri: '',
    role: 'reader',
    deviceId,
    locationId,
    at,
    contentHash: hash,
    basketKey: basketKeyOf(tenantId, epcHex),
    contentKey: contentKeyOf(tenantId, hash),
    processorType: 'MQTT',
    ...more,
  };
}

const books = (reads: readonly ExaminedRead[], rules: MovementRules): Map<string, ModelBasket> =>
  model(
    reads.map(({ basketKey, locationId, deviceId, at, contentHash }) => ({
      basket: basketKey,
      place: locationId,
      device: deviceId,
      at,
      hash: contentHash,
    })),
    rules,
  );

const path = (ledger: Ledger): string[] =>
  [...ledger.books().values()].flatMap(({ movements }) =>
    movements.map(({ from, to, repeats }) => `${from ?? ''}→${to}${repeats > 0 ? ` +${repeats}` : ''}`),
  );

/** A, B, A, B, … every two seconds for ten minutes. */
const bounce = (from: number): ExaminedRead[] =>
  Array.from({ length: 300 }, (_, i) => read(from + i * 2 * second, i % 2 === 0 ? 'A' : 'B'));

describe('RFID-6: movements follow event time', () => {
  test('a late read is put in its place: movements are inserted and changed', () => {
    const ledger = new Ledger(defaultRules);
    ledger.process([read(start, 'A')]);
    ledger.process([read(start + 10 * second, 'C')]);
    ledger.process([read(start + 5 * second, 'B')]);
    expect(path(ledger)).toEqual(['→A', 'A→B', 'B→C']);
    expect(ledger.told).toEqual(['inserted', 'changed']);
  });

  test('a read before the first one is the first sighting; the one that was is no movement if it was there', () => {
    const ledger = new Ledger(defaultRules);
    for (const seconds of [10, 5]) ledger.process([read(start + seconds * second, 'A')]);
    expect(path(ledger)).toEqual(['→A']);
    expect(ledger.told.toSorted()).toEqual(['inserted', 'withdrawn']);
    expect([...ledger.baskets.values()][0]).toMatchObject({
      firstAt: start + 5 * second,
      lastSeenAt: start + 10 * second,
    });
  });

  test('two places at one instant: the content hash orders them, not their arrival', () => {
    const [a, b] = [read(start, 'A'), read(start, 'B')];
    const outcomes = [
      [a, b],
      [b, a],
    ].map((order) => {
      const ledger = new Ledger(defaultRules);
      for (const one of order) ledger.process([one]);
      return path(ledger);
    });
    expect(outcomes[0]).toEqual(outcomes[1]);
    expect(outcomes[0]).toEqual(['→A', 'A→B']);
  });

  test('RFID-4: any permutation and any batches of any reads give the books of one pass over the sorted reads', () => {
    const one = fc
      .record({
        epcHex: fc.constantFrom('E1', 'E2'),
        place: fc.constantFrom('A', 'B', 'C'),
        deviceId: fc.constantFrom('x', 'y'),
        tenantId: fc.constantFrom('t', 'u'),
        // Close together, so that they meet: duplicates, ties, edges of buckets and of windows.
        at: fc.oneof(
          fc.integer({ min: 0, max: 12 }).map((n) => n * second),
          fc.integer({ min: 0, max: 40 }).map((n) => n * 30 * second),
          fc.constantFrom(window - 1, window, window + 1, 2 * window - 1),
        ),
      })
      .map(({ place, at, deviceId, ...more }) =>
        read(start + at, place, { ...more, deviceId: `${deviceId} at ${place}` }),
      );
    const rules = fc.record({
      window: fc.constantFrom(0, 20 * second, window),
      minimumStay: fc.constantFrom(0, 0, 1, 3 * second, 45 * second),
    });
    fc.assert(
      fc.property(
        fc.array(fc.array(one, { maxLength: 12, size: 'max' }), { maxLength: 8, size: 'max' }),
        rules,
        fc.constantFrom(1, 3, 100),
        fc.boolean(),
        (batches, rules, chunk, thorough) => {
          const ledger = new Ledger(rules, { chunk, thorough });
          for (const batch of batches) ledger.process(batch);
          expect(ledger.books()).toEqual(books(batches.flat(), rules));
        },
      ),
      { numRuns: 1000 },
    );
  });
});

describe('RFID-7: the same movement once in a window', () => {
  test('buckets begin on every fifth minute of UTC', () => {
    for (const minute of [0, 5, 55]) {
      const edge = Date.UTC(2026, 2, 1, 23, minute) * 1000;
      expect([edge - 1, edge, edge + window - 1].map((at) => bucketStart(at, window))).toEqual([
        edge - window,
        edge,
        edge,
      ]);
    }
  });

  test('a basket between two antennas for ten minutes makes 5 movements, wherever the buckets fall', () => {
    for (let phase = 0; phase < 300; phase += 1) {
      const ledger = new Ledger(defaultRules);
      ledger.process(bounce(start + phase * second));
      expect(path(ledger)).toEqual(['→A', 'A→B +74', 'B→A +74', 'A→B +74', 'B→A +73']);
    }
  });

  test('with the window off it makes 300; with a minimum stay of 5 s only the first sighting', () => {
    const all = new Ledger({ window: 0, minimumStay: 0 });
    all.process(bounce(start));
    expect(path(all)).toHaveLength(300);
    const first = new Ledger({ window, minimumStay: 5 * second });
    for (const one of bounce(start)) first.process([one]);
    expect(path(first)).toEqual(['→A']);
  });

  test('a late read can turn a kept movement into a repetition, and a repetition into a kept one', () => {
    const ledger = new Ledger(defaultRules);
    const at = (seconds: number, place: string) => ledger.process([read(start + seconds * second, place)]);
    at(0, 'A');
    at(200, 'B');
    at(250, 'A');
    at(450, 'B');
    expect(path(ledger)).toEqual(['→A', 'A→B +1', 'B→A']);
    at(100, 'B');
    at(150, 'A');
    // A→B is kept at 100 now: the one at 200 repeats it, the one at 450 no longer does.
    expect(path(ledger)).toEqual(['→A', 'A→B +1', 'B→A +1', 'A→B']);
  });

  test('with a minimum stay, a movement counts when the basket was read there for long enough, at the time it came', () => {
    const ledger = new Ledger({ window, minimumStay: 5 * second });
    const at = (seconds: number, place: string) => ledger.process([read(start + seconds * second, place)]);
    at(0, 'A');
    at(10, 'B');
    expect(path(ledger)).toEqual(['→A']);
    expect([...ledger.baskets.values()][0]).toMatchObject({ locationId: 'B', placeId: 'A' });
    at(15, 'B');
    expect(path(ledger)).toEqual(['→A', 'A→B']);
    expect([...ledger.baskets.values()][0]).toMatchObject({ locationId: 'B', placeId: null });
    // Not seen at C again, but elsewhere 60 s later: it was there meanwhile.
    at(20, 'C');
    at(80, 'A');
    expect(path(ledger)).toEqual(['→A', 'A→B', 'B→C']);
  });
});
