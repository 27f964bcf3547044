import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { Connection } from '../../../../src/apps/iot/mqtt/connection.ts';
import type { MqttMessage } from '../../../../src/apps/iot/mqtt/message.ts';
import { PermanentError } from '../../../../src/engine/errors.ts';
import { until } from '../../../support/engine.ts';
import { broker, impostor, listener, numbered, publishAll, publisher, settingsFor } from './support.ts';

const cases = [
  { protocol: '5', qos: 1 },
  { protocol: '5', qos: 2 },
  { protocol: '3.1.1', qos: 1 },
  { protocol: '3.1.1', qos: 2 },
] as const;

describe.each(cases)('MQTT $protocol, QoS $qos', ({ protocol, qos }) => {
  test('MQTT-5: nothing is acknowledged before its commit: without one all of it comes again', async () => {
    const { port } = await broker();
    const options = { protocol, qos };
    const first = listener(settingsFor(port, options), { onBatch: () => new Promise(() => {}) });
    await first.consumer.start();
    await publishAll(await publisher(port), numbered(15), qos);
    await until('all is in hand', () => first.consumer.status().counters.inFlight === 15);
    await first.consumer.stop({ timeoutMs: 1 });
    expect(first.consumer.status().counters.acknowledged).toBe(0);
    const second = listener(settingsFor(port, options));
    await second.consumer.start();
    await until('it came again', () => second.texts().length === 15);
    expect(second.texts()).toEqual(numbered(15).map(([, text]) => text));
    expect(second.messages.every(({ duplicate }) => duplicate)).toBe(true);
    await second.consumer.stop();
    const third = listener(settingsFor(port, options));
    await third.consumer.start();
    await publishAll(await publisher(port), numbered(1, 't/last'), qos);
    await until('the last came', () => third.texts().length > 0);
    expect(third.messages.map(({ topic }) => topic)).toEqual(['t/last']);
  });

  test('MQTT-5: a commit that fails is tried again, in order, and nothing is acknowledged until it succeeds', async () => {
    const { port } = await broker();
    const committed: string[] = [];
    let failures = 3;
    const { consumer } = listener(settingsFor(port, { protocol, qos }), {
      onBatch: async (batch) => {
        if (failures-- > 0) throw new Error('deadlock detected');
        committed.push(...batch.map(({ payload }) => payload.toString()));
      },
    });
    await consumer.start();
    await publishAll(await publisher(port), numbered(40), qos);
    await until('all is committed', () => consumer.status().counters.acknowledged === 40);
    expect(committed).toEqual(numbered(40).map(([, text]) => text));
    expect(consumer.status().counters).toMatchObject({ received: 40, rejected: 3, deadLettered: 0 });
  });
});

test('MQTT-5: taking leave ends in peace, though PUBRELs still come: a reset line might lose what was acknowledged', async () => {
  const [connect, disconnect] = [0x10, 0xe0];
  const port = await impostor((socket, chunk) => {
    if (chunk[0] === connect) socket.write(Buffer.from([0x20, 2, 0, 0]));
    if (chunk[0] === disconnect) socket.write(Buffer.from([0x62, 2, 0, 1]));
  });
  const connection = await Connection.open(settingsFor(port), { version: 4, onDelivery: () => {} });
  await connection.close();
  expect(await connection.ended).toBe('closed');
});

test('MQTT-5: a commit that ends after its connection is acknowledged on no other: the messages come again', async () => {
  const mosquitto = await broker();
  const commit = Promise.withResolvers<void>();
  const handed: string[] = [];
  const { consumer } = listener(settingsFor(mosquitto.port), {
    onBatch: async (batch) => {
      handed.push(...batch.map(({ payload }) => payload.toString()));
      await commit.promise;
    },
  });
  await consumer.start();
  await publishAll(await publisher(mosquitto.port), numbered(1), 2);
  await until('it is in hand', () => handed.length === 1);
  await mosquitto.stop();
  await mosquitto.start();
  await until('it has come again', () => consumer.status().counters.redelivered === 1);
  expect(handed).toEqual(['0']);
  commit.resolve();
  await until('it is acknowledged', () => consumer.status().counters.acknowledged === 1);
  expect(handed).toEqual(['0', '0']);
  expect(consumer.status().counters).toMatchObject({ received: 2, acknowledged: 1, inFlight: 0 });
});

test('MQTT-5: the receive maximum bounds what is in flight while the database is slow', async () => {
  const { port } = await broker();
  const commit = Promise.withResolvers<void>();
  const { consumer } = listener(settingsFor(port, { receiveMaximum: 20, qos: 1 }), {
    onBatch: () => commit.promise,
  });
  await consumer.start();
  await publishAll(await publisher(port), numbered(300), 1);
  await until('as much has come as may', () => consumer.status().counters.received >= 20);
  // Time for more, if it were sent.
  await sleep(200);
  expect(consumer.status().counters).toMatchObject({ received: 20, inFlight: 20 });
  commit.resolve();
  await until('all has come', () => consumer.status().counters.acknowledged === 300);
});

test('MQTT-5: a broker that knows no receive maximum fills the network, not our memory', async () => {
  const { port } = await broker({ extra: ['max_inflight_messages 0'] });
  const commit = Promise.withResolvers<void>();
  const settings = settingsFor(port, { protocol: '3.1.1', receiveMaximum: 20 });
  const { consumer } = listener(settings, { onBatch: () => commit.promise });
  await consumer.start();
  const body = 'x'.repeat(10_000);
  const sent = Array.from({ length: 600 }, (): [string, string] => ['t/a', body]);
  await publishAll(await publisher(port), sent, 1);
  await sleep(100);
  // What one read of the socket holds may come on top.
  expect(consumer.status().counters.inFlight).toBeLessThan(40);
  commit.resolve();
  await until('all has come', () => consumer.status().counters.acknowledged === 600);
});

test.each(['5', '3.1.1'] as const)('MQTT-5: bytes are bounded, too (MQTT %s)', async (protocol) => {
  const { port } = await broker({ extra: ['max_inflight_messages 0'] });
  const commit = Promise.withResolvers<void>();
  const settings = settingsFor(port, { protocol, maxInFlightBytes: 200_000, maxBatch: 5 });
  const { consumer } = listener(settings, { onBatch: () => commit.promise });
  await consumer.start();
  const client = await publisher(port);
  const large = 'x'.repeat(50_000);
  for (let i = 0; i < 60; i += 1) await client.publishAsync('t/a', large, { qos: 2 });
  await sleep(100);
  // What one read of the socket holds may come on top.
  expect(consumer.status().counters.bytesInFlight).toBeLessThan(400_000);
  commit.resolve();
  await until('all has come', () => consumer.status().counters.acknowledged === 60);
  expect(consumer.status().counters).toMatchObject({ inFlight: 0, bytesInFlight: 0, redelivered: 0 });
});

test('a message of 5 MB comes as it was sent', async () => {
  const { port } = await broker();
  const { consumer, messages } = listener(settingsFor(port));
  await consumer.start();
  const body = Buffer.alloc(5_000_000, 'tag ');
  await (await publisher(port)).publishAsync('t/large', body, { qos: 2 });
  await until('it has come', () => messages.length === 1);
  expect(messages[0]?.payload.equals(body)).toBe(true);
});

test('MQTT-6: what arrives during a commit shares the next one, and each device stays in order', async () => {
  const { port } = await broker();
  const messages: MqttMessage[] = [];
  const batches: number[] = [];
  const published = Promise.withResolvers<void>();
  const { consumer } = listener(settingsFor(port, { maxBatch: 100 }), {
    onBatch: async (batch) => {
      batches.push(batch.length);
      // The first takes until all is published, however slowly.
      await published.promise;
      messages.push(...batch);
    },
  });
  await consumer.start();
  const sent = Array.from({ length: 600 }, (_, i): [string, string] => [`t/${i % 7}`, String(i)]);
  await publishAll(await publisher(port), sent, 2);
  published.resolve();
  await until('all is committed', () => consumer.status().counters.acknowledged === 600);
  expect(batches.length).toBeLessThan(300);
  expect(Math.max(...batches)).toBeGreaterThan(1);
  expect(Math.max(...batches)).toBeLessThanOrEqual(100);
  for (let device = 0; device < 7; device += 1) {
    const numbers = messages
      .filter(({ topic }) => topic === `t/${device}`)
      .map(({ payload }) => Number(payload));
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
});

describe('poison', () => {
  const refusing =
    (bad: ReadonlySet<string>, committed: string[]) =>
    async (batch: readonly MqttMessage[]): Promise<void> => {
      const texts = batch.map(({ payload }) => payload.toString());
      const poison = texts.find((text) => bad.has(text));
      if (poison !== undefined) throw new Error(`invalid byte sequence in ${poison}`);
      committed.push(...texts);
    };

  test('MQTT-9: what no commit can take is found, kept as a dead letter, and acknowledged; the others pass', async () => {
    const { port } = await broker();
    const bad = new Set(['13', '14', '77']);
    const committed: string[] = [];
    const buried: [string, string][] = [];
    const { consumer } = listener(settingsFor(port), {
      onBatch: refusing(bad, committed),
      deadLetter: async ({ payload }, error) => void buried.push([payload.toString(), String(error)]),
    });
    await consumer.start();
    await publishAll(await publisher(port), numbered(100), 2);
    await until('all is acknowledged', () => consumer.status().counters.acknowledged === 100);
    expect(buried.map(([text]) => text)).toEqual(['13', '14', '77']);
    expect(buried[0]?.[1]).toContain('invalid byte sequence in 13');
    expect(committed).toEqual(numbered(100).flatMap(([, text]) => (bad.has(text) ? [] : [text])));
    await consumer.stop();
    const next = listener(settingsFor(port));
    await next.consumer.start();
    await publishAll(await publisher(port), numbered(1, 't/last'), 2);
    await until('the last came', () => next.messages.length > 0);
    expect(next.messages.map(({ topic }) => topic)).toEqual(['t/last']);
  });

  test('MQTT-9: until the dead letter is durable, its message is not acknowledged', async () => {
    const { port } = await broker();
    const committed: string[] = [];
    let attempts = 0;
    const { consumer, logs } = listener(settingsFor(port), {
      onBatch: refusing(new Set(['1']), committed),
      deadLetter: async () => {
        attempts += 1;
        expect(consumer.status().counters.acknowledged).toBeLessThanOrEqual(1);
        if (attempts === 1) throw new Error('the disk is full');
      },
    });
    await consumer.start();
    await publishAll(await publisher(port), numbered(3), 2);
    await until('it was tried', () => attempts === 1);
    await publishAll(await publisher(port), numbered(2, 't/a', 3), 2);
    await until('all is acknowledged', () => consumer.status().counters.acknowledged === 5);
    expect(committed).toEqual(['0', '2', '3', '4']);
    expect(attempts).toBe(2);
    expect(logs.at('error')[0]?.fields).toMatchObject({ reason: 'the disk is full' });
  });

  test('MQTT-9: an outage makes no dead letters, however long', async () => {
    const { port } = await broker();
    const committed: string[] = [];
    const buried: string[] = [];
    let outage = 9;
    const { consumer } = listener(settingsFor(port), {
      onBatch: async (batch) => {
        if (outage-- > 0) throw new Error('the table is locked');
        committed.push(...batch.map(({ payload }) => payload.toString()));
      },
      deadLetter: async ({ payload }) => void buried.push(payload.toString()),
    });
    await consumer.start();
    await publishAll(await publisher(port), numbered(5), 2);
    await until('all is acknowledged', () => consumer.status().counters.acknowledged === 5);
    expect(buried).toEqual([]);
    expect(committed.toSorted()).toEqual(['0', '1', '2', '3', '4']);
  });

  test('MQTT-9: what the handler calls permanent is a dead letter at once', async () => {
    const { port } = await broker();
    const buried: string[] = [];
    const { consumer } = listener(settingsFor(port), {
      onBatch: async () => {
        throw new PermanentError('NOT_A_READ', 'this is no tag read');
      },
      deadLetter: async ({ payload }) => void buried.push(payload.toString()),
    });
    await consumer.start();
    await publishAll(await publisher(port), numbered(4), 2);
    await until('all is acknowledged', () => consumer.status().counters.acknowledged === 4);
    expect(buried).toEqual(['0', '1', '2', '3']);
  });

  test('a handler that fails holds back its own route; the other one is not run twice', async () => {
    const { port } = await broker();
    const fine: string[] = [];
    let failures = 4;
    const { consumer } = listener(settingsFor(port), {
      onBatch: async () => {
        if (failures-- > 0) throw new Error('not yet');
      },
      routes: [
        {
          filter: 'fine/#',
          onBatch: async (batch) => void fine.push(...batch.map(({ payload }) => payload.toString())),
        },
      ],
    });
    await consumer.start();
    const mixed = numbered(40).map(([, text], i): [string, string] => [i % 2 ? 'fine/a' : 't/a', text]);
    await publishAll(await publisher(port), mixed, 2);
    await until('all is acknowledged', () => consumer.status().counters.acknowledged === 40);
    expect(fine).toEqual(numbered(40).flatMap(([, text], i) => (i % 2 ? [text] : [])));
  });
});
