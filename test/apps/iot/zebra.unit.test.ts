import { describe, expect, test } from 'vitest';
import { deviceOfTopic, parseZebraReads } from '../../../src/apps/iot/zebra.ts';

const topic = 'zebra/fx/dock-1/reads';
const epc = '3314257BF40C0E4000000190';
const timestamp = '2026-03-01T12:00:00.123+0000';
const simple = (data: object = {}, more: object = {}) => ({
  type: 'SIMPLE',
  timestamp,
  data: { idHex: epc, antenna: 1, peakRssi: -52, eventNum: 17, format: 'epc', reads: 1, ...data },
  ...more,
});
const parse = (message: unknown, on = topic) =>
  parseZebraReads(on, Buffer.from(typeof message === 'string' ? message : JSON.stringify(message)), {
    tenantId: 't',
  });
const expected = {
  tenantId: 't',
  deviceId: 'dock-1',
  epcHex: epc,
  eventTimestamp: '2026-03-01T12:00:00.123000Z',
  antenna: 1,
  rssi: -52,
  eventNumber: 17,
};

describe('Zebra FX messages', () => {
  test('a read, an array of reads, and a list of tags say the same', () => {
    const alone = { reads: [expected], rejected: [] };
    expect(parse(simple())).toEqual(alone);
    expect(parse([simple()])).toEqual(alone);
    const { data, ...rest } = simple();
    expect(parse({ ...rest, data: { tagData: [data] } })).toEqual(alone);
    const both = parse([simple(), { ...rest, data: { tagData: [data, { ...data, idHex: 'ab' }] } }]);
    expect(both.reads.map(({ epcHex }) => epcHex)).toEqual([epc, epc, 'AB']);
  });

  test('what cannot be understood is told item by item, and costs no neighbour', () => {
    const { reads, rejected } = parse([
      simple({ idHex: 12 }),
      simple({}, { timestamp: 1_772_366_400 }),
      simple({}, { timestamp: 'noon' }),
      simple({}, { data: null }),
      simple({ idHex: ' ' }),
      simple({ idHex: 'A\0' }),
      simple({ format: 'tid' }),
      simple({ tagData: 'none' }),
      null,
      [],
      simple(),
    ]);
    expect(reads).toEqual([expected]);
    expect(rejected.map(({ index, reason }) => `${index} ${reason}`)).toEqual([
      '0 idHex must be a text, got a number',
      '1 timestamp must be a text, got a number',
      expect.stringMatching(/^2 "noon" is not a time/),
      '3 data must be an object, got null',
      '4 idHex is empty',
      '5 idHex contains a NUL character',
      '6 format must be "epc", got "tid"',
      '7 data.tagData must be an array, got a string',
      '8 a read must be an object, got null',
      '9 a read must be an object, got an array',
    ]);
  });

  test('a strength or an antenna that is none is left out, the read kept', () => {
    expect(parse(simple({ antenna: '1', peakRssi: null, eventNum: 1.5 })).reads).toEqual([
      { ...expected, antenna: null, rssi: null, eventNumber: null },
    ]);
    expect(parse(simple({ antenna: 1e9, peakRssi: 1e300 })).reads[0]).toMatchObject({
      antenna: null,
      rssi: null,
    });
  });

  test('a time with a zone that does not exist is refused, and the other reads of the message are kept', () => {
    const { data, ...rest } = simple();
    const tagData = [{ ...data, timestamp: '2026-03-01T12:00:00+25:00' }, data];
    const { reads, rejected } = parse({ ...rest, data: { tagData } });
    expect(reads).toHaveLength(1);
    expect(rejected).toEqual([{ index: 0, reason: expect.stringMatching(/zone that does not exist/) }]);
  });

  test('a message that is no JSON, of another topic, or too long is refused as a whole', () => {
    for (const [message, on, reason] of [
      ['{"type":', topic, /not JSON/],
      [simple(), 'zebra/fx/dock-1/events', /topic/],
      [simple(), 'zebra/fx//reads', /topic/],
      [`"${'x'.repeat(5 * 1024 * 1024)}"`, topic, /bytes/],
    ] as const)
      expect(parse(message, on)).toEqual({
        reads: [],
        rejected: [{ index: null, reason: expect.stringMatching(reason) }],
      });
    expect(parse('7').rejected).toEqual([{ index: 0, reason: 'a read must be an object, got a number' }]);
    expect(parse('[]')).toEqual({ reads: [], rejected: [] });
  });

  test('10,000 reads in one message', () => {
    const { data, ...rest } = simple();
    const tagData = Array.from({ length: 10_000 }, (_, i) => ({ ...data, eventNum: i }));
    const { reads, rejected } = parse({ ...rest, data: { tagData } });
    expect([reads.length, rejected.length]).toEqual([10_000, 0]);
    expect(reads.at(-1)?.eventNumber).toBe(9999);
  });

  test('device names in any script', () => {
    expect(deviceOfTopic('zebra/fx/門-3 Süd/reads')).toBe('門-3 Süd');
    expect(parse(simple(), 'zebra/fx/門-3 Süd/reads').reads[0]?.deviceId).toBe('門-3 Süd');
    expect(deviceOfTopic('zebra/fx/a/b/reads')).toBeUndefined();
  });
});
