/**
 * An MQTT broker for the demo: the one that MQTT_URL names, else our own Mosquitto if the machine has it, else aedes inside
 * this process if it is installed.
 */

import type { MqttOptions } from '../apps/iot/mqtt/index.ts';
import { describe } from '../engine/database/database.ts';
import { TallymanError } from '../engine/errors.ts';
import { startAedes } from './broker/aedes.ts';
import { findMosquitto, startMosquitto } from './broker/mosquitto.ts';

export interface Broker {
  readonly url: string;
  /** Where it is, as text without secrets. */
  readonly where: string;
  /** The most unacknowledged messages that it accepts. Default: as many as any broker accepts. */
  readonly mostInFlight?: number;
  close(): Promise<void>;
}

/** `folder`: where our own broker keeps its messages. */
export async function openBroker(folder: string, env = process.env): Promise<Broker> {
  const url = env.MQTT_URL;
  if (url !== undefined && url !== '') {
    connectionOf(url);
    return { url, where: `MQTT_URL, ${describe(url)}`, close: async () => {} };
  }
  const program = findMosquitto(env);
  if (program !== undefined) return startMosquitto(program, `${folder}/mosquitto`);
  const inProcess = await startAedes();
  if (inProcess !== undefined) return inProcess;
  throw new TallymanError(
    'NO_BROKER',
    [
      'There is no MQTT broker. One of these is enough:',
      '  a Mosquitto on this machine   apt-get install mosquitto, brew install mosquitto',
      '  one inside the demo           npm install --no-save aedes',
      '  one that runs elsewhere       MQTT_URL=mqtt://host:1883 npm start',
    ].join('\n'),
  );
}

/** How the consumer reaches the broker of an address. */
export function connectionOf(
  address: string,
): Pick<MqttOptions, 'brokerHost' | 'brokerPort' | 'tls' | 'username' | 'password'> {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url === undefined || !['mqtt:', 'mqtts:'].includes(url.protocol) || url.hostname === '')
    throw new TallymanError(
      'BAD_OPTION',
      `MQTT_URL is "${describe(address)}"; expected mqtt://host:1883 or mqtts://user:password@host:8883`,
    );
  const tls = url.protocol === 'mqtts:';
  return {
    brokerHost: url.hostname.replace(/^\[|\]$/g, ''),
    brokerPort: url.port === '' ? (tls ? 8883 : 1883) : Number(url.port),
    tls,
    ...(url.username !== '' && { username: decodeURIComponent(url.username) }),
    ...(url.password !== '' && { password: decodeURIComponent(url.password) }),
  };
}
