import { describe, expect, test } from 'vitest';
import { transmissions } from '../../src/simulate/readers.ts';
import { Truth } from '../../src/simulate/truth.ts';
import { movements, plant, read, tag } from '../apps/rfid/support.ts';

const second = 1_000_000;

/** `A 0, B 20`: seen at door A at second 0, at B at second 20. */
function movesOf(text: string): number {
  const truth = new Truth();
  for (const sighting of text.split(', ')) {
    const [device = '', at] = sighting.split(' ');
    truth.sent([{ epc: 'E', device, at: Number(at) * second }], false);
  }
  return truth.figures.movements;
}

describe('the simulator knows', () => {
  test.each([
    { seen: 'A 0', moves: 1, why: 'the first sighting' },
    { seen: 'A 0, A 1, A 2', moves: 1, why: 'it stays' },
    { seen: 'A 0, B 20', moves: 2, why: 'it moves' },
    { seen: 'A 0, B 20, A 10', moves: 2, why: 'a late read is put in its place' },
    { seen: 'A 0, A 20, B 10', moves: 3, why: 'and makes movements there' },
    { seen: 'B 20, A 0', moves: 2, why: 'what was first, counts first' },
    { seen: 'A 0, B 20, A 40, B 60', moves: 3, why: 'the same movement within five minutes' },
    { seen: 'A 0, B 299, A 301, B 302', moves: 3, why: 'also across the edge of a bucket' },
    { seen: 'A 0, B 20, A 40, B 320', moves: 4, why: 'again after five minutes' },
  ])('RFID-6, RFID-7: $seen makes $moves ($why)', ({ seen, moves }) => {
    expect(movesOf(seen)).toBe(moves);
  });

  test('what is sent again counts as sent, and moves nothing', () => {
    const truth = new Truth();
    const reads = [{ epc: 'E', device: 'A', at: 5 }];
    truth.sent(reads, false);
    truth.sent([{ epc: 'E', device: 'B', at: 9 }], false);
    truth.sent(reads, true);
    truth.damaged();
    expect(truth.figures).toEqual({
      messages: 4,
      reads: 3,
      distinctReads: 2,
      damaged: 1,
      baskets: 1,
      movements: 2,
    });
  });

  test('RFID-6, RFID-7: a plain model agrees with processTagReads, basket by basket', async () => {
    const doors = ['dock-1', 'dock-2', 'dock-3', 'dock-4'];
    const bundle = await plant(doors);
    const truth = new Truth();
    const source = transmissions({ seed: 11, devices: 4, baskets: 25, duplicates: 0.15, outOfOrder: 0.3 });
    const sent = Array.from({ length: 3000 }, () => source.next().value);
    for (let at = 0; at < sent.length; at += 250) {
      const batch = sent.slice(at, at + 250);
      for (const each of batch) truth.sent(each.reads, each.again);
      await bundle.processor.processTagReads(
        batch.flatMap(({ reads }) =>
          reads.map(({ epc, device, at: micros }) => read(device, micros / second, { epc })),
        ),
      );
    }
    const { figures } = truth;
    expect(figures.movements).toBeGreaterThan(200);
    const [counts] = await bundle.rows(
      `select (select count(*)::integer from rfid.tag_read_processings) as reads,
              (select count(*)::integer from rfid.baskets) as baskets,
              (select count(*)::integer from rfid.movements) as movements`,
    );
    expect(counts).toEqual({
      reads: figures.distinctReads,
      baskets: figures.baskets,
      movements: figures.movements,
    });
    for (const number of [1, 7, 25]) {
      const history = await movements(bundle, tag(number));
      expect(history.length).toBe(truth.baskets.get(tag(number))?.movements);
      const [basket] = await bundle.rows(
        'select last_device_id as place from rfid.baskets where epc_hex = $1',
        [tag(number)],
      );
      expect(basket).toEqual({ place: truth.baskets.get(tag(number))?.place });
    }
  });
});
