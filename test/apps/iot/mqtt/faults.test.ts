import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { generate } from 'mqtt-packet';
import { describe, expect, onTestFinished, test } from 'vitest';
import { doctorMqtt } from '../../../../src/apps/iot/mqtt/doctor.ts';
import { until } from '../../../support/engine.ts';
import { freePorts, removeFolder, temporaryFolder } from '../../../support/services/service.ts';
import { broker, impostor, listener, numbered, publishAll, publisher, settingsFor } from './support.ts';

const five = { protocolVersion: 5 };
const welcome = generate({ cmd: 'connack', sessionPresent: true, reasonCode: 0 }, five);
const granted = generate({ cmd: 'suback', messageId: 1, granted: [2] }, five);
const isConnect = (chunk: Buffer): boolean => chunk[0] === 0x10;
const isSubscribe = (chunk: Buffer): boolean => chunk[0] === 0x82;

describe('it does not get in, says why, and goes on trying', () => {
  test('nobody listens', async () => {
    const [port = 0] = await freePorts(1);
    const { consumer, logs } = listener(settingsFor(port));
    await consumer.start();
    expect(consumer.status()).toMatchObject({ state: 'waiting', ready: false });
    expect(consumer.status().reason).toMatch(/127\.0\.0\.1:\d+: nothing listens there \(ECONNREFUSED\)/);
    await until('it has tried again', () => logs.at('debug').length >= 2);
    expect(logs.at('warn')).toHaveLength(1);
    await consumer.stop();
    expect(consumer.status().state).toBe('stopped');
  });

  test('the name is unknown', async () => {
    const { consumer } = listener(settingsFor(1883, { brokerHost: 'no-such-broker.invalid' }));
    await consumer.start();
    expect(consumer.status().reason).toMatch(/the name (is unknown|could not be looked up)/);
  });

  test.each(['5', '3.1.1'] as const)(
    'MQTT-4: wrong password, then the right one (MQTT %s)',
    async (protocol) => {
      const { mosquitto, right } = await guarded();
      const wrong = listener(settingsFor(mosquitto.port, { protocol, username: 'plant', password: 'wrong' }));
      await wrong.consumer.start();
      expect(wrong.consumer.status().reason).toMatch(/not authorized|user name or password/);
      await until('it tries again', () => wrong.logs.at('debug').length > 0);
      expect(JSON.stringify(wrong.logs.lines)).not.toContain('"wrong"');
      const good = listener(settingsFor(mosquitto.port, { protocol, ...right }));
      await good.consumer.start();
      expect(good.consumer.status().ready).toBe(true);
    },
  );

  test('autoReconnect false: it gives up, and says so', async () => {
    const [port = 0] = await freePorts(1);
    const { consumer } = listener(settingsFor(port, { autoReconnect: false }));
    await consumer.start();
    await until('it gave up', () => consumer.status().state === 'failed');
    expect(consumer.status().reason).toContain('ECONNREFUSED');
  });

  test('nothing answers within the time', async () => {
    const port = await impostor(() => {});
    const { consumer } = listener(settingsFor(port, { connectTimeoutSeconds: 0.2 }));
    await consumer.start();
    expect(consumer.status().reason).toBe('no answer within 200 ms');
  });

  test('it hangs up instead of answering', async () => {
    const port = await impostor((socket) => socket.end());
    const { consumer } = listener(settingsFor(port));
    await consumer.start();
    expect(consumer.status().reason).toMatch(
      /closed the connection before it answered; perhaps.*TLS.*3\.1\.1/,
    );
  });

  test('something else answers', async () => {
    const port = await impostor((socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'));
    const { consumer } = listener(settingsFor(port));
    await consumer.start();
    expect(consumer.status()).toMatchObject({ state: 'waiting' });
  });
});

test('MQTT 3.1.1 is spoken where the broker refuses 5', async () => {
  const levels: (number | undefined)[] = [];
  const port = await impostor((socket, chunk) => {
    if (isSubscribe(chunk)) return void socket.write(generate({ cmd: 'suback', messageId: 1, granted: [2] }));
    if (!isConnect(chunk)) return;
    levels.push(chunk[8]);
    const accepted = chunk[8] === 4;
    socket.write(Buffer.from([0x20, 2, 0, accepted ? 0 : 1]));
    if (!accepted) socket.end();
  });
  const { consumer, logs } = listener(settingsFor(port, { sharedSubscriptionGroup: 'g' }));
  await consumer.start();
  expect(levels).toEqual([5, 4]);
  expect(consumer.status()).toMatchObject({ ready: true, protocol: '3.1.1' });
  expect(consumer.status().subscriptions).toEqual([{ topic: 't/#', effective: 't/#', granted: 2 }]);
  expect(logs.at('warn').map(({ message }) => message)).toContainEqual(
    expect.stringContaining('cannot share'),
  );
});

describe('a broker that misbehaves', () => {
  test.each([
    ['a QoS of 3', Buffer.from([0x36, 5, 0, 1, 0x61, 0, 1])],
    ['a reserved packet type', Buffer.from([0x00, 0])],
    ['a length without end', Buffer.from([0x30, 0xff, 0xff, 0xff, 0xff, 0xff])],
    ['a message without its packet id', Buffer.from([0x34, 6, 0, 1, 0x61, 0, 0, 0])],
    ['a packet that only clients send', Buffer.from([0xc0, 0])],
    ['a second welcome', welcome],
    ['noise', Buffer.from('5f3a9c77e1b04d21aa90', 'hex')],
  ])('sends %s: the connection is dropped and made anew', async (_, bytes) => {
    let connects = 0;
    const port = await impostor((socket, chunk) => {
      if (isConnect(chunk)) socket.write(welcome);
      if (isConnect(chunk)) connects += 1;
      if (isSubscribe(chunk)) socket.write(granted);
      if (isSubscribe(chunk) && connects === 1) socket.write(bytes);
    });
    const { consumer, messages } = listener(settingsFor(port));
    await consumer.start();
    await until('it is back', () => connects === 2 && consumer.status().ready);
    expect(messages).toEqual([]);
    expect(consumer.status().counters.acknowledged).toBe(0);
  });

  test('sends a packet beyond our size that is no message: it is not kept in memory', async () => {
    let connects = 0;
    const port = await impostor((socket, chunk) => {
      if (isConnect(chunk)) socket.write(welcome);
      if (isConnect(chunk)) connects += 1;
      if (isSubscribe(chunk)) socket.write(granted);
      if (isSubscribe(chunk) && connects === 1)
        socket.write(Buffer.concat([Buffer.from([0x90, 0xff, 0xff, 0xff, 0x7f]), Buffer.alloc(1_000_000)]));
    });
    const { consumer } = listener(settingsFor(port, { maxPacketSize: 100_000 }));
    await consumer.start();
    await until('it is back', () => connects === 2 && consumer.status().ready);
  });

  test('falls silent: noticed within the keep-alive', async () => {
    let connects = 0;
    const port = await impostor((socket, chunk) => {
      if (isConnect(chunk)) connects += 1;
      if (isConnect(chunk)) socket.write(welcome);
      if (isSubscribe(chunk)) socket.write(granted);
    });
    const { consumer, logs } = listener(settingsFor(port, { keepAliveSeconds: 1 }));
    await consumer.start();
    await until('it has tried again', () => connects >= 2);
    expect(logs.at('warn')[0]?.fields).toMatchObject({ reason: expect.stringContaining('silent') });
  });

  test('MQTT-3: says that our client id was taken over: told with what to do', async () => {
    const port = await impostor((socket, chunk) => {
      if (isConnect(chunk)) socket.write(welcome);
      if (isSubscribe(chunk))
        socket.write(Buffer.concat([granted, generate({ cmd: 'disconnect', reasonCode: 0x8e }, five)]));
    });
    const { consumer, logs } = listener(settingsFor(port));
    await consumer.start();
    await until('it is told', () => logs.at('warn').length > 0);
    expect(logs.at('warn')[0]?.fields).toMatchObject({
      reason: expect.stringContaining('give each instance its own instanceId'),
    });
  });

  test('MQTT-4: keeps sessions for less long than asked: told', async () => {
    const properties = { sessionExpiryInterval: 60 };
    const brief = generate({ cmd: 'connack', sessionPresent: true, reasonCode: 0, properties }, five);
    const port = await impostor((socket, chunk) => {
      if (isConnect(chunk)) socket.write(brief);
      if (isSubscribe(chunk)) socket.write(granted);
    });
    const { consumer, logs } = listener(settingsFor(port));
    await consumer.start();
    expect(logs.at('warn')[0]?.fields).toEqual({ asked: 3600, granted: 60 });
    const findings = await doctorMqtt({ settings: settingsFor(port), waitMs: 300, probes: 1 });
    expect(findings.find(({ check }) => check === 'mqtt-probes')?.level).toBe('fail');
  });

  test('refuses a subscription: told, not ready, the others work', async () => {
    const port = await impostor((socket, chunk) => {
      if (isConnect(chunk)) socket.write(welcome);
      if (isSubscribe(chunk))
        socket.write(generate({ cmd: 'suback', messageId: 1, granted: [0x87, 1] }, five));
    });
    const { consumer, logs } = listener(settingsFor(port, { subscribeTopics: ['secret/#', 't/#'] }));
    await consumer.start();
    expect(consumer.status()).toMatchObject({ state: 'connected', ready: false });
    expect(consumer.status().subscriptions[0]?.granted).toContain('not authorized');
    expect(logs.at('error')).toHaveLength(1);
    expect(logs.at('warn').map(({ message }) => message)).toContain(
      'MQTT subscription granted at a lower QoS',
    );
  });
});

test('MQTT-3: two instances with one client id are told what is wrong', async () => {
  const { port } = await broker();
  const slow = { reconnectDelaySeconds: 5, maxReconnectDelaySeconds: 5 };
  const first = listener(settingsFor(port, slow));
  const second = listener(settingsFor(port, slow));
  await first.consumer.start();
  await second.consumer.start();
  await until('the first is out', () => first.consumer.status().state === 'waiting');
  expect(first.consumer.status().reason).toMatch(/our client id/);
});

test('a paused broker is left, and found again', async () => {
  const mosquitto = await broker();
  const { consumer, texts } = listener(
    settingsFor(mosquitto.port, { keepAliveSeconds: 1, connectTimeoutSeconds: 2 }),
  );
  await consumer.start();
  mosquitto.pause();
  await until('it is missed', () => consumer.status().state !== 'connected');
  mosquitto.resume();
  await until('it is back', () => consumer.status().ready);
  await publishAll(await publisher(mosquitto.port), numbered(10), 2);
  await until('all has come', () => new Set(texts()).size === 10);
});

async function guarded() {
  const folder = await temporaryFolder('passwords');
  onTestFinished(() => removeFolder(folder));
  const file = join(folder, 'passwords');
  execFileSync('mosquitto_passwd', ['-b', '-c', file, 'plant', 'right'], { stdio: 'ignore' });
  const mosquitto = await broker({ extra: ['allow_anonymous false', `password_file ${file}`] });
  return { mosquitto, right: { username: 'plant', password: 'right' } };
}
