import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import mqtt, { type IClientOptions, type MqttClient } from 'mqtt';
import { onTestFinished } from 'vitest';
import { MqttConsumer, type MqttConsumerOptions } from '../../../../src/apps/iot/mqtt/consumer.ts';
import type { MqttMessage } from '../../../../src/apps/iot/mqtt/message.ts';
import { type MqttOptions, type MqttSettings, mqttSettings } from '../../../../src/apps/iot/mqtt/options.ts';
import { RecordedLogs } from '../../../support/services/logs.ts';
import {
  type Mosquitto,
  type MosquittoOptions,
  privateMosquitto,
} from '../../../support/services/mosquitto.ts';

/** A private Mosquitto that runs until the test ends. */
export async function broker(options?: MosquittoOptions): Promise<Mosquitto> {
  const mosquitto = await privateMosquitto(options);
  onTestFinished(() => mosquitto[Symbol.asyncDispose]());
  await mosquitto.start();
  return mosquitto;
}

export const quick = {
  reconnectDelaySeconds: 0.05,
  maxReconnectDelaySeconds: 0.2,
  connectTimeoutSeconds: 60,
};

export function settingsFor(port: number, options: Partial<MqttOptions> = {}): MqttSettings {
  return mqttSettings({
    brokerHost: '127.0.0.1',
    brokerPort: port,
    environmentId: 'test',
    instanceId: 'one',
    subscribeTopics: ['t/#'],
    ...quick,
    ...options,
  });
}

export interface Listener {
  readonly consumer: MqttConsumer;
  readonly messages: MqttMessage[];
  readonly texts: () => string[];
  readonly batches: number[];
  readonly logs: RecordedLogs;
}

/** A consumer that keeps what it is given; stopped when the test ends. */
export function listener(
  settings: MqttSettings,
  options: Partial<Omit<MqttConsumerOptions, 'settings'>> = {},
): Listener {
  const messages: MqttMessage[] = [];
  const batches: number[] = [];
  const logs = new RecordedLogs();
  const consumer = new MqttConsumer({
    settings,
    logger: logs,
    onBatch: async (batch) => {
      batches.push(batch.length);
      messages.push(...batch);
    },
    ...options,
  });
  onTestFinished(() => consumer.stop({ timeoutMs: 500 }));
  return {
    consumer,
    messages,
    batches,
    logs,
    texts: () => messages.map(({ payload }) => payload.toString()),
  };
}

export async function publisher(port: number, options: IClientOptions = {}): Promise<MqttClient> {
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { protocolVersion: 5, ...options });
  client.on('error', () => {});
  onTestFinished(() => client.endAsync(true).catch(() => {}));
  return client;
}

/** Few at a time: the library does not heed the broker's receive maximum, and beyond it Mosquitto drops. */
export async function publishAll(
  client: MqttClient,
  messages: readonly (readonly [topic: string, payload: string])[],
  qos: 1 | 2,
): Promise<void> {
  for (let i = 0; i < messages.length; i += 15) {
    const some = messages.slice(i, i + 15);
    await Promise.all(some.map(([topic, payload]) => client.publishAsync(topic, payload, { qos })));
  }
}

export const numbered = (count: number, topic = 't/a', from = 0): [string, string][] =>
  Array.from({ length: count }, (_, i) => [topic, String(from + i)]);

/** A server that is no broker: it does what `onData` says. Answers its port. */
export async function impostor(onData: (socket: Socket, chunk: Buffer) => void): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => onData(socket, chunk));
    onTestFinished(() => void socket.destroy());
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}
