/** A message that is larger than `maxPacketSize`, at a real broker. */
import { expect, test } from 'vitest';
import { until } from '../../../support/engine.ts';
import { broker, listener, publishAll, publisher, settingsFor } from './support.ts';

const limit = 16 * 1024 * 1024;

test('SEC-8: a broker of MQTT 5 keeps a message above 16 MiB to itself; those behind it go on', async () => {
  const { port } = await broker();
  const { consumer, messages } = listener(settingsFor(port));
  await consumer.start();
  const client = await publisher(port);
  await publishAll(client, [['t/a', 'before']], 2);
  await client.publishAsync('t/a', Buffer.alloc(limit), { qos: 2 });
  await publishAll(client, [['t/a', 'behind']], 2);
  await until('the next one is there', () => messages.length >= 2);
  expect(messages.map(({ payload }) => payload.length)).toEqual([6, 6]);
  expect(consumer.status().counters.reconnects).toBe(0);
});

test('SEC-8: where the broker sends it nevertheless (3.1.1), it is left out, it is told once what to do, and others go on', async () => {
  const { port } = await broker();
  const { consumer, logs, texts } = listener(
    settingsFor(port, { protocol: '3.1.1', maxPacketSize: 1024 * 1024 }),
  );
  await consumer.start();
  const client = await publisher(port);
  const large = Buffer.alloc(8 * 1024 * 1024);
  for (const qos of [1, 2, 0] as const) {
    await client.publishAsync('t/a', `before ${qos}`, { qos });
    await client.publishAsync('t/large', large, { qos });
    await client.publishAsync('t/a', `behind ${qos}`, { qos });
  }
  await until('all others are there', () => texts().length === 6);
  await until('all are acknowledged', () => consumer.status().counters.inFlight === 0);
  expect(texts()).toEqual([1, 2, 0].flatMap((qos) => [`before ${qos}`, `behind ${qos}`]));
  expect(consumer.status().counters).toMatchObject({ oversized: 3, reconnects: 0 });
  expect(logs.at('error')).toEqual([
    expect.objectContaining({
      fields: expect.objectContaining({
        topic: 't/large',
        bytes: expect.any(Number),
        maxPacketSize: 1024 * 1024,
      }),
      message: expect.stringContaining('raise the limit'),
    }),
  ]);
  // The broker has forgotten them: they do not come again.
  await consumer.stop();
  await consumer.start();
  await client.publishAsync('t/a', 'later', { qos: 2 });
  await until('the later one is there', () => texts().length === 7);
  expect(consumer.status().counters.oversized).toBe(3);
});
