import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { generate, parser as mqttParser } from 'mqtt-packet';
import { expect, onTestFinished, test } from 'vitest';
import { doctorMqtt } from '../../../../src/apps/iot/mqtt/doctor.ts';
import { type MqttOptions, mqttSettings } from '../../../../src/apps/iot/mqtt/options.ts';
import type { Finding } from '../../../../src/engine/database/doctor.ts';
import { until } from '../../../support/engine.ts';
import { freePorts, removeFolder, temporaryFolder } from '../../../support/services/service.ts';
import { broker, impostor, listener, numbered, publishAll, publisher, settingsFor } from './support.ts';

const of = (findings: readonly Finding[], check: string) =>
  findings.filter((finding) => finding.check === check);
const failed = (findings: readonly Finding[]) => findings.filter(({ level }) => level === 'fail');

test.each([
  { protocol: '5', group: 'reads' },
  { protocol: '5', group: null },
  { protocol: '3.1.1', group: 'reads' },
] as const)('MQTT-11: it proves a deployment (MQTT $protocol, group $group)', async ({ protocol, group }) => {
  const { port } = await broker();
  const settings = settingsFor(port, {
    protocol,
    sharedSubscriptionGroup: group,
    subscribeTopics: ['a/+', 'b/#'],
  });
  const findings = await doctorMqtt({ settings, waitMs: 60_000 });
  expect(failed(findings)).toEqual([]);
  expect(of(findings, 'mqtt-identity')[0]?.message).toBe(
    'environment test, client id mqtt-processor-test-one, clean start false, session expiry 3600 s',
  );
  expect(of(findings, 'mqtt-topics')[0]?.message).toContain(
    group === null ? 'a/+, b/#' : '$share/reads-test/a/+',
  );
  expect(of(findings, 'mqtt-subscription')).toHaveLength(2);
  expect(of(findings, 'mqtt-probes')).toEqual([
    expect.objectContaining({ level: 'ok', message: expect.stringContaining('20 probes') }),
  ]);
  expect(of(findings, 'mqtt-version')[0]?.level).toBe(protocol === '5' ? 'ok' : 'warn');
  expect(of(findings, 'mqtt-shared')[0]?.level).toBe(protocol === '3.1.1' && group ? 'warn' : 'ok');
});

test('MQTT-11: a running instance is not disturbed, and takes no part in the probes', async () => {
  const { port } = await broker();
  const settings = settingsFor(port, { sharedSubscriptionGroup: 'g' });
  const { consumer, texts } = listener(settings);
  await consumer.start();
  await doctorMqtt({ settings });
  await publishAll(await publisher(port), numbered(30), 2);
  await until('all has come', () => texts().length === 30);
  expect(consumer.status().counters.reconnects).toBe(0);
});

test('MQTT-11: a session that a vanished instance left behind is told', async () => {
  const { port } = await broker({ extra: ['sys_interval 1'] });
  const gone = listener(settingsFor(port, { instanceId: 'gone' }));
  await gone.consumer.start();
  await gone.consumer.stop();
  const options = { settings: settingsFor(port), formerInstances: ['gone', 'never'], probes: 0 };
  for (let times = 0; times < 2; times += 1) {
    const sessions = of(await doctorMqtt(options), 'mqtt-sessions').filter(({ message }) =>
      /gone|never/.test(message),
    );
    expect(sessions.map(({ level }) => level)).toEqual(['warn', 'ok']);
    expect(sessions[0]?.message).toContain('mqtt-processor-test-gone');
  }
  let findings: Finding[] = [];
  await until('the broker counts it', async () => {
    findings = await doctorMqtt({ settings: settingsFor(port), probes: 0 });
    return of(findings, 'mqtt-sessions').length > 0;
  });
  expect(of(findings, 'mqtt-sessions')[0]?.message).toMatch(/1 session\(s\) at the broker have nobody/);
});

test('MQTT-11: a broker that does not queue for the absent is found out', async () => {
  const { port } = await broker({ extra: ['max_queued_messages 5', 'max_inflight_messages 1'] });
  const findings = await doctorMqtt({ settings: settingsFor(port), waitMs: 3000 });
  expect(failed(findings)).toEqual([
    expect.objectContaining({
      check: 'mqtt-probes',
      advice: expect.stringContaining('max_queued_messages 0'),
    }),
  ]);
});

test.each<[string, Partial<MqttOptions>, string]>([
  ['a clean session', { cleanSession: true }, 'mqtt-session-settings'],
  ['a session that expires at once', { sessionExpiryIntervalSeconds: 0 }, 'mqtt-session-settings'],
  ['an ephemeral client id', { appendUniqueIdToClientId: true }, 'mqtt-client-id'],
  ['QoS 0', { qos: 0 }, 'mqtt-qos'],
])('MQTT-11: %s loses messages, and it says so', async (_, options, check) => {
  const { port } = await broker();
  const findings = await doctorMqtt({ settings: settingsFor(port, options), waitMs: 1000 });
  expect(failed(findings).map((finding) => finding.check)).toContain(check);
  expect(of(findings, check)[0]?.advice).toBeTypeOf('string');
});

test('a host name that is made up at every start is told', async () => {
  const [port = 0] = await freePorts(1);
  const check = async (hostName: string) => {
    const options = { brokerHost: '127.0.0.1', brokerPort: port, environmentId: 'e' };
    const settings = mqttSettings(options, { env: {}, hostName });
    return of(await doctorMqtt({ settings }), 'mqtt-client-id')[0]?.level;
  };
  expect(await check('reads-7d9f8b6c5d-x2x9q')).toBe('warn');
  expect(await check('3f2a9b1c0d4e')).toBe('warn');
  expect(await check('reads-0')).toBe('ok');
});

test('MQTT-11: the limits of the broker are told', async () => {
  const { port } = await broker({ extra: ['max_packet_size 100000'], listener: ['max_qos 1'] });
  const findings = await doctorMqtt({ settings: settingsFor(port), probes: 0 });
  expect(of(findings, 'mqtt-maximum-qos')[0]).toMatchObject({ level: 'warn' });
  expect(of(findings, 'mqtt-limits')[0]?.message).toContain('100000 bytes');
});

test('MQTT-11: a topic we may not use is told: by the broker itself, or by probes that do not arrive', async () => {
  const folder = await temporaryFolder('access');
  onTestFinished(() => removeFolder(folder));
  const file = join(folder, 'access');
  await writeFile(file, 'topic readwrite t/#\n');
  const { port } = await broker({ extra: [`acl_file ${file}`] });
  const settings = settingsFor(port);
  const allowed = await doctorMqtt({ settings, probeTopic: 't/doctor', waitMs: 60_000 });
  expect(of(allowed, 'mqtt-probes')[0]?.level).toBe('ok');
  const elsewhere = await doctorMqtt({ settings, probeTopic: 'secret/doctor', waitMs: 500 });
  expect(of(elsewhere, 'mqtt-probes')[0]).toMatchObject({ level: 'fail' });

  const five = { protocolVersion: 5 };
  const refusing = await impostor((socket, chunk) => {
    if (chunk[0] === 0x10)
      socket.write(generate({ cmd: 'connack', sessionPresent: false, reasonCode: 0 }, five));
    if (chunk[0] === 0x82) socket.write(generate({ cmd: 'suback', messageId: 1, granted: [0x87] }, five));
  });
  const findings = await doctorMqtt({ settings: settingsFor(refusing), probes: 0, waitMs: 200 });
  expect(of(findings, 'mqtt-subscription')).toEqual([
    expect.objectContaining({
      level: 'fail',
      message: expect.stringContaining('t/#: refused, not authorized'),
    }),
  ]);
});

test('a broker that is not there is one finding, with the reason', async () => {
  const [port = 0] = await freePorts(1);
  const findings = await doctorMqtt({ settings: settingsFor(port) });
  expect(failed(findings)).toEqual([
    expect.objectContaining({ check: 'mqtt-connection', message: expect.stringContaining('ECONNREFUSED') }),
  ]);
});

test('MQTT-11: it tells of a Mosquitto that forgets shared groups over a restart, and what its settings must be', async () => {
  for (const [version, group, warns] of [
    ['2.0.11', 'reads', true],
    ['2.0.11', null, false],
    ['2.0.21', 'reads', false],
    ['2.1.0', 'reads', false],
  ] as const) {
    const port = await versionedBroker(`mosquitto version ${version}`);
    const settings = settingsFor(port, { sharedSubscriptionGroup: group });
    const findings = await doctorMqtt({ settings, probes: 0, waitMs: 1000 });
    expect(of(findings, 'mqtt-shared-restart').map(({ level }) => level)).toEqual(warns ? ['warn'] : []);
    const [about] = of(findings, 'mqtt-broker');
    expect(`${about?.message} ${about?.advice}`).toContain('autosave_on_changes false, autosave_interval 1');
  }
});

/** Accepts every connection and subscription, and says which version it is. */
const versionedBroker = (version: string) =>
  impostor((socket, chunk) => {
    const answer = (packet: Parameters<typeof generate>[0]) =>
      socket.write(generate(packet, { protocolVersion: 5 }));
    if ((chunk[0] ?? 0) >> 4 === 1)
      answer({ cmd: 'connack', reasonCode: 0, sessionPresent: false, properties: {} });
    if ((chunk[0] ?? 0) >> 4 !== 8) return;
    const parser = mqttParser({ protocolVersion: 5 });
    parser.on('packet', (packet) => {
      if (packet.cmd !== 'subscribe') return;
      answer({
        cmd: 'suback',
        messageId: packet.messageId ?? 1,
        granted: packet.subscriptions.map(({ qos }) => qos),
        properties: {},
      });
      if (packet.subscriptions.some(({ topic }) => topic.startsWith('$SYS')))
        answer({
          cmd: 'publish',
          topic: '$SYS/broker/version',
          payload: version,
          qos: 0,
          dup: false,
          retain: true,
          properties: {},
        });
    });
    parser.parse(chunk);
  });
