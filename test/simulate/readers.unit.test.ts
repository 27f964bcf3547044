import { describe, expect, test } from 'vitest';
import { parseZebraReads } from '../../src/apps/iot/index.ts';
import { decodeEpc } from '../../src/apps/rfid/index.ts';
import { type ReaderOptions, type Transmission, transmissions } from '../../src/simulate/readers.ts';
import { basketTag } from '../../src/simulate/tags.ts';

const beganAt = Date.UTC(2026, 2, 1, 12);

function take(count: number, options: Partial<ReaderOptions> = {}): Transmission[] {
  const source = transmissions({ seed: 7, ...options });
  return Array.from({ length: count }, () => source.next().value);
}

const texts = (sent: readonly Transmission[]): string[] =>
  sent.map(({ topic, payload }) => `${topic} ${payload(beganAt)}`);

const parsed = ({ topic, payload }: Transmission) =>
  parseZebraReads(topic, Buffer.from(payload(beganAt)), { tenantId: 'default' });

describe('simulated readers', () => {
  test('the same seed makes the same messages, another seed others', () => {
    expect(texts(take(2000))).toEqual(texts(take(2000)));
    expect(texts(take(200))).not.toEqual(texts(take(200, { seed: 8 })));
  });

  test('how messages travel does not change where baskets go', () => {
    const firsts = (count: number, options: Partial<ReaderOptions>): string[] =>
      take(count, options)
        .filter(({ again }) => !again)
        .flatMap(({ reads }) => reads.map(({ epc, device, at }) => `${at} ${device} ${epc}`));
    const calm = new Set(firsts(4000, { duplicates: 0, outOfOrder: 0 }));
    const wild = firsts(4000, { duplicates: 0.5, outOfOrder: 0.5 });
    expect(wild.filter((read) => !calm.has(read))).toEqual([]);
  });

  test('every message is one that the parser takes, and says what the simulator says it says', () => {
    const sent = take(1000);
    for (const each of sent) {
      const { reads, rejected } = parsed(each);
      expect(rejected).toEqual([]);
      expect(
        reads.map(({ deviceId, epcHex, eventTimestamp }) => [deviceId, epcHex, Date.parse(eventTimestamp)]),
      ).toEqual(each.reads.map(({ device, epc, at }) => [device, epc, Math.floor(beganAt + at / 1000)]));
    }
    const shapes = sent.map(({ payload }) => JSON.parse(payload(beganAt)));
    expect(shapes.some((message) => Array.isArray(message))).toBe(true);
    expect(shapes.some((message) => message.data?.tagData?.length > 1)).toBe(true);
    expect(shapes.some((message) => message.data?.idHex !== undefined)).toBe(true);
  });

  test('RFID-5: tags are GRAI-96 and in the order of their serials', () => {
    expect(basketTag(400)).toBe('3314257BF40C0E4000000190');
    expect(decodeEpc(basketTag(2 ** 38 - 1)).uri).toBe(`urn:epc:id:grai:0614141.12345.${2 ** 38 - 1}`);
    const tags = [1, 9, 10, 255, 256, 100_000].map(basketTag);
    expect(tags.toSorted()).toEqual(tags);
  });

  test('a message that is sent again is the same to the byte, and comes after the first', () => {
    const before = new Set<string>();
    let again = 0;
    const sent = take(4000, { duplicates: 0.2, outOfOrder: 0.2 });
    for (const [i, text] of texts(sent).entries()) {
      expect(before.has(text)).toBe(sent[i]?.again);
      before.add(text);
      again += sent[i]?.again ? 1 : 0;
    }
    expect(again / sent.length).toBeGreaterThan(0.12);
  });

  test('some come late; what goes out never goes back in time, and no read stands twice in the first messages', () => {
    const sent = take(4000, { duplicates: 0 });
    const newest = new Map<string, number>();
    const seen = new Set<string>();
    let late = 0;
    for (const { reads } of sent)
      for (const { epc, device, at } of reads) {
        if (at < (newest.get(epc) ?? 0)) late += 1;
        newest.set(epc, Math.max(at, newest.get(epc) ?? 0));
        seen.add(`${epc} ${device} ${at}`);
      }
    expect(seen.size).toBe(sent.reduce((sum, { reads }) => sum + reads.length, 0));
    expect(late).toBeGreaterThan(50);
    expect(sent.every(({ at }, i) => at >= (sent[i - 1]?.at ?? 0))).toBe(true);
    expect(sent.every(({ at, reads }) => reads.every((read) => read.at <= at))).toBe(true);
  });

  test('baskets are read several times at a door, and come to others', () => {
    const doors = new Map<string, string[]>();
    for (const { reads } of take(4000, { duplicates: 0, outOfOrder: 0, devices: 4, baskets: 30 }))
      for (const { epc, device } of reads) doors.set(epc, [...(doors.get(epc) ?? []), device]);
    expect(doors.size).toBe(30);
    for (const seen of doors.values()) {
      const changes = seen.filter((door, i) => door !== seen[i - 1]).length;
      expect(changes).toBeGreaterThan(3);
      expect(seen.length / changes).toBeGreaterThan(3);
      expect(new Set(seen).size).toBe(4);
    }
  });

  test('MQTT-9: damaged messages are refused, and no two are alike', () => {
    const damaged = take(5000, { damaged: 0.05 }).filter(({ reads }) => reads.length === 0);
    expect(damaged.length).toBeGreaterThan(150);
    expect(new Set(texts(damaged)).size).toBe(damaged.length);
    for (const each of damaged)
      expect(parsed(each)).toMatchObject({ reads: [], rejected: [{ index: null }] });
  });

  test.each([
    { devices: 1, baskets: 2 },
    { devices: 1, baskets: 50 },
    { devices: 40, baskets: 2 },
    { devices: 3, baskets: 1000, firstBasket: 5_000_000 },
  ])('it goes on with $devices devices and $baskets baskets', (options) => {
    expect(take(2000, options).length).toBe(2000);
  });
});
