/**
 * Proves that a broker keeps messages while we are disconnected: subscribe, leave, publish, come back, count.
 * Uses its own client id and topic, so that no running instance is disturbed.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { IClientOptions } from 'mqtt';
import { pause, within } from '../../../engine/resilience/deadline.ts';
import type { Connection } from './connection.ts';
import type { Delivery } from './message.ts';
import { openWithin } from './negotiate.ts';
import type { MqttSettings } from './options.ts';
import type { ProtocolVersion } from './packets.ts';
import { effectiveTopic } from './subscriptions.ts';

export interface ProbeReport {
  readonly topic: string;
  /** False: the broker lost our session between leaving and coming back. */
  readonly sessionPresent: boolean;
  readonly published: number;
  readonly arrived: number;
  readonly repeated: number;
  readonly granted: number;
  /** As granted; undefined in MQTT 3.1.1. */
  readonly sessionExpirySeconds: number | undefined;
}

/** Uses the doctor's own client id, which no running instance has. */
export function asDoctor(settings: MqttSettings): MqttSettings {
  return { ...settings, clientId: `${settings.clientId}-doctor-${randomBytes(4).toString('hex')}` };
}

export async function probe(
  settings: MqttSettings,
  version: ProtocolVersion,
  {
    topic: prefix,
    count,
    waitMs,
  }: { readonly topic: string; readonly count: number; readonly waitMs: number },
): Promise<ProbeReport> {
  const own = asDoctor(settings);
  const topic = `${prefix}/${randomBytes(6).toString('hex')}`;
  try {
    const first = await openWithin(waitMs, own, undefined, version);
    const filter = effectiveTopic(settings, topic, first.welcome.sharedSubscriptions);
    const { sessionExpirySeconds } = first.welcome;
    const [granted = 0x80] = await within(first.subscribe([filter], settings.qos), waitMs);
    await first.close();
    await publish(own, version, topic, count, waitMs);
    const arrivals = new Map<string, number>();
    const onDelivery = (connection: Connection, delivery: Delivery): void => {
      const text = delivery.message.payload.toString();
      arrivals.set(text, (arrivals.get(text) ?? 0) + 1);
      connection.acknowledge([delivery]);
    };
    const second = await openWithin(waitMs, own, onDelivery, version);
    const deadline = Date.now() + waitMs;
    while (arrivals.size < count && Date.now() < deadline && second.isOpen) await pause(20);
    // Wait for a message that might come twice.
    await pause(200);
    const { sessionPresent } = second.welcome;
    await second.close();
    const repeated = [...arrivals.values()].filter((times) => times > 1).length;
    return {
      topic,
      sessionPresent,
      published: count,
      arrived: arrivals.size,
      repeated,
      granted,
      sessionExpirySeconds,
    };
  } finally {
    await forgetSession(own, version, waitMs);
  }
}

/** Ends the session that the broker keeps under this client id, with all its waiting messages. */
export async function forgetSession(
  settings: MqttSettings,
  version: ProtocolVersion,
  waitMs: number,
): Promise<void> {
  const clean = { ...settings, cleanSession: true, sessionExpiryIntervalSeconds: 0 };
  const connection = await openWithin(waitMs, clean, undefined, version);
  await connection.close();
}

/** One after another: the library ignores the broker's receive maximum. */
async function publish(
  settings: MqttSettings,
  version: ProtocolVersion,
  topic: string,
  count: number,
  waitMs: number,
): Promise<void> {
  const { default: mqtt } = await import('mqtt');
  const client = await mqtt.connectAsync({
    ...(await clientOptions(settings)),
    clientId: `${settings.clientId}-probes`,
    protocolVersion: version,
    clean: true,
    reconnectPeriod: 0,
  });
  try {
    for (let i = 0; i < count; i += 1)
      await within(client.publishAsync(topic, `probe ${i}`, { qos: 2 }), waitMs);
  } finally {
    await client.endAsync(true);
  }
}

async function clientOptions(settings: MqttSettings): Promise<IClientOptions> {
  const pem = async (value: string): Promise<string> =>
    value.includes('-----BEGIN') ? value : readFile(value, 'utf8');
  const { tlsCa, tlsCertificate, tlsKey, tlsServerName, username, password } = settings;
  return {
    host: settings.brokerHost,
    port: settings.brokerPort,
    protocol: settings.tls ? 'mqtts' : 'mqtt',
    connectTimeout: settings.connectTimeoutSeconds * 1000,
    ...(username !== null && { username }),
    ...(password !== null && { password }),
    ...(tlsCa !== null && { ca: await pem(tlsCa) }),
    ...(tlsCertificate !== null && { cert: await pem(tlsCertificate) }),
    ...(tlsKey !== null && { key: await pem(tlsKey) }),
    ...(tlsServerName !== null && { servername: tlsServerName }),
  };
}
