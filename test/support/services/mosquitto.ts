import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { firstBytes, freePorts, Service, temporaryFolder } from './service.ts';

export interface MosquittoOptions {
  /** Lines for mosquitto.conf, after those that make it lose nothing. */
  readonly extra?: readonly string[];
  /** Lines about the listener: among the others they would open another one, on the standard port. */
  readonly listener?: readonly string[];
  /** Given the folder; answers lines for a second listener, and gets its port. */
  readonly secondListener?: (folder: string, port: number) => Promise<readonly string[]>;
}

export interface Mosquitto extends Service {
  readonly secondPort: number;
}

/** A CONNECT of MQTT 3.1.1 without a client id. */
const hello = '\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00';

/**
 * A private Mosquitto, not started yet, set up as it must be to lose nothing: it writes what it has to disk every second, and
 * at its end, and keeps whatever it is given.
 */
export async function privateMosquitto(options: MosquittoOptions = {}): Promise<Mosquitto> {
  const [port = 0, secondPort = 0] = await freePorts(2);
  const folder = await temporaryFolder('mosquitto');
  await mkdir(join(folder, 'data'));
  const configuration = [
    'per_listener_settings false',
    'persistence true',
    `persistence_location ${join(folder, 'data')}/`,
    'autosave_on_changes false',
    'autosave_interval 1',
    'max_queued_messages 0',
    'set_tcp_nodelay true',
    // Started as root it would become another user, which may not enter the folder.
    ...(process.getuid?.() === 0 ? ['user root'] : []),
    ...(options.extra?.some((line) => line.startsWith('allow_anonymous')) ? [] : ['allow_anonymous true']),
    ...(options.extra ?? []),
    `listener ${port} 127.0.0.1`,
    ...(options.listener ?? []),
    ...((await options.secondListener?.(folder, secondPort)) ?? []),
  ];
  const file = join(folder, 'mosquitto.conf');
  await writeFile(file, `${configuration.join('\n')}\n`);
  const service = new Service({
    name: 'mosquitto',
    debianPackage: 'mosquitto',
    program: 'mosquitto',
    args: ['-c', file],
    port,
    folder,
    url: `mqtt://127.0.0.1:${port}`,
    ready: async () => (await firstBytes(port, hello))?.startsWith('\x20\x02') === true,
  });
  return Object.assign(service, { secondPort });
}
