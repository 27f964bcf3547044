/**
 * An MQTT broker for the demo: the one that MQTT_URL names, else our own Mosquitto if the machine has it, else aedes inside
 * this process if it is installed.
 */

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
  if (url !== undefined && url !== '')
    return { url, where: `MQTT_URL, ${describe(url)}`, close: async () => {} };
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
