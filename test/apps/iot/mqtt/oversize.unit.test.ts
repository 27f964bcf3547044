import { generate } from 'mqtt-packet';
import { expect, test } from 'vitest';
import { type Oversized, OversizeFilter } from '../../../../src/apps/iot/mqtt/oversize.ts';
import { seededRandom } from '../../../support/seeded-random.ts';

const message = (topic: string, bytes: number, qos: 0 | 1 | 2, messageId: number): Buffer =>
  generate({
    ...{ cmd: 'publish' as const, topic, payload: Buffer.alloc(bytes, 7), qos, dup: false, retain: false },
    ...(qos > 0 && { messageId }),
  });

test('SEC-8: however the bytes are cut, messages beyond the limit are left out and told, and all else passes as it was', () => {
  const random = seededRandom();
  for (let round = 0; round < 300; round += 1) {
    const told: Oversized[] = [];
    const filter = new OversizeFilter(1000, (each) => told.push(each));
    const sent: Buffer[] = [];
    const kept: Buffer[] = [];
    const left: object[] = [];
    for (let n = 1; n <= 8; n += 1) {
      const qos = random.of([0, 1, 2] as const);
      const topic = 't/'.padEnd(2 + random.whole(300), 'x');
      const packet = random.chance(0.2)
        ? Buffer.from([0xd0, 0])
        : message(topic, random.of([0, 1, 500, 900, 1000, 3000, 200_000]), qos, n);
      sent.push(packet);
      if (packet.length <= 1000) kept.push(packet);
      else left.push({ topic, qos, packetId: qos > 0 ? n : 0 });
    }
    const bytes = Buffer.concat(sent);
    const passed: Buffer[] = [];
    for (let at = 0; at < bytes.length; ) {
      const size = random.of([1, 2, 3, 7, 100, 5000, 65_536]);
      passed.push(...filter.pass(bytes.subarray(at, at + size)));
      at += size;
    }
    expect(Buffer.concat(passed).equals(Buffer.concat(kept))).toBe(true);
    expect(told).toMatchObject(left);
    expect(told).toHaveLength(left.length);
  }
});

test.each([1, 2, 3, 50, 1000])(
  'SEC-8: a topic that is longer than its packet is malformed, and what follows passes: %i bytes at a time',
  (size) => {
    const oversized: Oversized[] = [];
    const filter = new OversizeFilter(128, (each) => oversized.push(each));
    const ping = Buffer.from([0xd0, 0]);
    const packet = Buffer.concat([
      Buffer.from([0x32, 200, 1, 60_000 >> 8, 60_000 & 255]),
      Buffer.alloc(198, 120),
    ]);
    const bytes = Buffer.concat([packet, ping]);
    const passed: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += size)
      passed.push(...filter.pass(bytes.subarray(at, at + size)));
    expect(Buffer.concat(passed)).toEqual(ping);
    expect(oversized).toEqual([{ topic: '', qos: 1, packetId: 0, bytes: 200, isMalformed: true }]);
  },
);

test('SEC-8: a message that is all topic is left out as soon as it has come', () => {
  const oversized: Oversized[] = [];
  const filter = new OversizeFilter(128, (each) => oversized.push(each));
  expect(filter.pass(message('t'.repeat(300), 0, 1, 7))).toEqual([]);
  expect(oversized).toMatchObject([{ packetId: 7, isMalformed: false }]);
});
