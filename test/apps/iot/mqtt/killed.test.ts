import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { until } from '../../../support/engine.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import { Killable } from './killable.ts';
import { broker, publishAll, publisher } from './support.ts';

const devices = 10;
const messages = (count: number): [string, string][] =>
  Array.from({ length: count }, (_, i) => [`d/${i % devices}`, `m:${i}`]);

describe.each([1, 2] as const)('QoS %i', (qos) => {
  test('MQTT-5: killed at random moments, 5,000 messages: none lost, each has one effect, in order', {
    timeout: 600_000,
  }, async () => {
    // Here the broker lives: it need not write its whole memory to disk after every message.
    const { port } = await broker({ extra: ['autosave_on_changes false', 'autosave_interval 60'] });
    const dice = seededRandom();
    const consumer = await Killable.on(port, { qos, receiveMaximum: 200, maxBatch: 50 });
    await consumer.start();
    await consumer.kill();
    const client = await publisher(port);
    let published = false;
    const publishing = publishAll(client, messages(5000), qos).then(() => {
      published = true;
    });
    let kills = 0;
    while (!published || kills < 8) {
      const starting = consumer.start();
      // Sometimes before it has connected, sometimes in the middle of a commit.
      await Promise.race([starting, sleep(dice.between(0, 900))]);
      await sleep(dice.between(0, 200));
      await consumer.kill();
      await starting;
      kills += 1;
    }
    await publishing;
    await consumer.start();
    await until('all is committed', async () => (await consumer.committed()) === 5000, 300_000);
    expect(await consumer.amiss()).toEqual([]);
    // Only what a killed process had received and the broker had no acknowledgement of comes again.
    expect(await consumer.repeated()).toMatchObject({ unannounced: 0 });
  });

  test('MQTT-5: the broker is restarted in the middle: none lost, each has one effect', {
    timeout: 600_000,
  }, async () => {
    const mosquitto = await broker();
    const consumer = await Killable.on(mosquitto.port, { qos });
    await consumer.start();
    const client = await publisher(mosquitto.port, {
      clean: false,
      clientId: 'publisher',
      reconnectPeriod: 50,
      properties: { sessionExpiryInterval: 600 },
    });
    const all = messages(3000);
    // A third for each restart: a broker that is quick must not have passed on everything before the last one.
    for (let first = 0; first < all.length; first += 1000) {
      const publishing = publishAll(client, all.slice(first, first + 1000), qos);
      await until(
        'some more are committed',
        async () => (await consumer.committed()) >= first + 200,
        300_000,
      );
      await mosquitto.stop();
      await sleep(100);
      await mosquitto.start();
      await publishing;
    }
    await until('all is committed', async () => (await consumer.committed()) === all.length, 300_000);
    const { rows } = await consumer.database.query(
      'select key from effects group by key having count(*) > 1',
    );
    expect(rows).toEqual([]);
  });

  test('MQTT-5: paused for longer than its keep-alive: none lost, each has one effect, in order', {
    timeout: 600_000,
  }, async () => {
    const { port } = await broker();
    const consumer = await Killable.on(port, { qos, keepAliveSeconds: 1, receiveMaximum: 100 });
    await consumer.start();
    const publishing = publishAll(await publisher(port), messages(3000), qos);
    await until('it has begun', async () => (await consumer.committed()) > 100);
    consumer.pause();
    await sleep(4000);
    consumer.resume();
    await publishing;
    await until('all is committed', async () => (await consumer.committed()) === 3000, 300_000);
    expect(await consumer.amiss()).toEqual([]);
  });
});
