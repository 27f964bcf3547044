import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { SessionGap } from '../../../../src/apps/iot/mqtt/consumer.ts';
import type { MqttMessage } from '../../../../src/apps/iot/mqtt/message.ts';
import { until } from '../../../support/engine.ts';
import { broker, listener, numbered, publishAll, publisher, settingsFor } from './support.ts';

const versions = ['5', '3.1.1'] as const;

describe('who gets what', () => {
  test('MQTT-1: every environment gets every message, instances of one share them', async () => {
    const { port } = await broker();
    const group = { sharedSubscriptionGroup: 'reads' };
    const a1 = listener(settingsFor(port, { ...group, environmentId: 'a', instanceId: '1' }));
    const a2 = listener(settingsFor(port, { ...group, environmentId: 'a', instanceId: '2' }));
    const b = listener(settingsFor(port, { ...group, environmentId: 'b' }));
    const all = listener(settingsFor(port, { environmentId: 'c' }));
    for (const { consumer } of [a1, a2, b, all]) await consumer.start();
    await publishAll(await publisher(port), numbered(200), 2);
    await until('all has come', () => [b, all].every(({ messages }) => messages.length === 200));
    await until('it is shared out', () => a1.messages.length + a2.messages.length === 200);
    expect(Math.min(a1.messages.length, a2.messages.length)).toBeGreaterThan(0);
    expect(new Set([...a1.texts(), ...a2.texts()]).size).toBe(200);
  });

  test('a message goes to the first route that matches, the rest to onBatch', async () => {
    const { port } = await broker();
    const events: MqttMessage[] = [];
    const onBatch = async (batch: readonly MqttMessage[]) => void events.push(...batch);
    const { consumer, messages } = listener(settingsFor(port), {
      routes: [{ filter: 'x/+/events', onBatch }],
    });
    await consumer.start();
    const client = await publisher(port);
    const properties = { contentType: 'text/plain', userProperties: { plant: 'north' } };
    await client.publishAsync('x/1/events', 'e', { qos: 1, properties });
    await client.publishAsync('t/1', 'r', { qos: 2 });
    await until('both have come', () => events.length === 1 && messages.length === 1);
    expect(events[0]).toMatchObject({ topic: 'x/1/events', qos: 1, duplicate: false, retained: false });
    expect(events[0]?.properties).toMatchObject({ contentType: 'text/plain' });
    expect(messages[0]).toMatchObject({ topic: 't/1', qos: 2 });
    expect(consumer.status().subscriptions.map(({ effective }) => effective)).toEqual(['t/#', 'x/+/events']);
  });

  test('MQTT-7: one line on connect, one a subscription', async () => {
    const { port } = await broker();
    const user = { username: 'plant', password: 'hidden' };
    const topics = { sharedSubscriptionGroup: 'g', subscribeTopics: ['a/#', 'b/+'] };
    const { consumer, logs } = listener(settingsFor(port, { ...user, ...topics }));
    await consumer.start();
    const lines = logs.at('info').filter(({ message }) => /^MQTT (connected|subscription)$/.test(message));
    expect(lines.map(({ fields }) => fields)).toEqual([
      expect.objectContaining({
        broker: `mqtt://127.0.0.1:${port}`,
        environmentId: 'test',
        clientId: 'mqtt-processor-test-one',
        cleanStart: false,
        sessionExpirySeconds: 3600,
      }),
      { topic: '$share/g-test/a/#', group: 'g', qos: 2 },
      { topic: '$share/g-test/b/+', group: 'g', qos: 2 },
    ]);
    expect(JSON.stringify(logs.lines)).not.toContain('hidden');
  });

  test('MQTT-10: a disabled consumer does nothing', async () => {
    const { consumer } = listener(settingsFor(1, { enabled: false }));
    await consumer.start();
    expect(consumer.status()).toMatchObject({ state: 'disabled', ready: false });
  });
});

describe.each(versions)('the session, MQTT %s', (protocol) => {
  test('MQTT-4: what is published while we are away is there when we are back', async () => {
    const { port } = await broker();
    const { consumer, texts } = listener(settingsFor(port, { protocol }));
    await consumer.start();
    expect(consumer.status()).toMatchObject({ state: 'connected', ready: true, protocol });
    await consumer.stop();
    expect(consumer.status().state).toBe('stopped');
    await publishAll(await publisher(port), numbered(50), 2);
    await consumer.start();
    await until('all has come', () => texts().length >= 50);
    expect(texts()).toEqual(numbered(50).map(([, text]) => text));
    expect(consumer.status()).toMatchObject({ counters: { received: 50, redelivered: 0, reconnects: 1 } });
  });

  test('MQTT-4: it comes back by itself after the broker has been away', async () => {
    const mosquitto = await broker();
    const { consumer, texts, logs } = listener(settingsFor(mosquitto.port, { protocol }));
    await consumer.start();
    await mosquitto.stop();
    await until('the loss is seen', () => consumer.status().state !== 'connected');
    expect(consumer.status().ready).toBe(false);
    await mosquitto.start();
    await until('it is back', () => consumer.status().ready);
    await publishAll(await publisher(mosquitto.port), numbered(5), 2);
    await until('all has come', () => texts().length === 5);
    expect(logs.at('warn').map(({ message }) => message)).toEqual([
      'MQTT broker lost or out of reach; trying again',
    ]);
    expect(logs.at('info').map(({ message }) => message)).toContain('MQTT broker is back');
  });
});

describe('the gap', () => {
  test('MQTT-8: a session that is gone is told, with a warning, until somebody has filled the gap', async () => {
    const mosquitto = await broker({ extra: ['persistence false'] });
    const gaps: SessionGap[] = [];
    const onSessionGap = async (gap: SessionGap) => {
      gaps.push(gap);
      if (gaps.length === 2) throw new Error('no database');
    };
    const { consumer, logs } = listener(settingsFor(mosquitto.port), { onSessionGap });
    await consumer.start();
    expect(gaps).toEqual([{ reconnect: false, since: undefined }]);
    await mosquitto.kill();
    await mosquitto.start();
    await until('the gap was filled', () => gaps.length === 3);
    expect(gaps[1]).toMatchObject({ reconnect: true, since: expect.any(Date) });
    expect(gaps[2]).toEqual(gaps[1]);
    expect(logs.at('warn').map(({ message }) => message)).toContainEqual(
      expect.stringMatching(/no session.*replayed/),
    );
  });

  test('MQTT-8: no gap where the session is present', async () => {
    const mosquitto = await broker();
    const gaps: SessionGap[] = [];
    const { consumer } = listener(settingsFor(mosquitto.port), {
      onSessionGap: async (gap) => void gaps.push(gap),
    });
    await consumer.start();
    await mosquitto.stop();
    await mosquitto.start();
    await until('it is back', () => consumer.status().counters.reconnects === 1);
    expect(gaps).toEqual([{ reconnect: false, since: undefined }]);
  });
});

describe('leaving', () => {
  test('stop waits for the batch in hand, acknowledges it, and leaves the rest to the broker', async () => {
    const { port } = await broker();
    const commit = Promise.withResolvers<void>();
    const first: string[] = [];
    const { consumer } = listener(settingsFor(port, { maxBatch: 10 }), {
      onBatch: async (batch) => {
        first.push(...batch.map(({ payload }) => payload.toString()));
        await commit.promise;
      },
    });
    await consumer.start();
    await publishAll(await publisher(port), numbered(30), 2);
    await until('all is in hand', () => consumer.status().counters.inFlight === 30);
    const stopping = consumer.stop();
    await sleep(50);
    expect(consumer.status().state).toBe('stopping');
    commit.resolve();
    await stopping;
    const next = listener(settingsFor(port));
    await next.consumer.start();
    await until('the rest has come', () => next.texts().length >= 30 - first.length);
    expect([...first, ...next.texts()]).toEqual(numbered(30).map(([, text]) => text));
  });

  test('a batch that does not end in time is not acknowledged', async () => {
    const { port } = await broker();
    const { consumer } = listener(settingsFor(port), { onBatch: () => new Promise(() => {}) });
    await consumer.start();
    await publishAll(await publisher(port), numbered(3), 1);
    await until('it is in hand', () => consumer.status().counters.batches === 1);
    await consumer.stop({ timeoutMs: 50 });
    const next = listener(settingsFor(port));
    onTestFinished(() => next.consumer.stop());
    await next.consumer.start();
    await until('it came again', () => next.texts().length === 3);
    expect(next.messages[0]?.duplicate).toBe(true);
  });
});
