import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { accepts, endWithUs, execute, freePort, stop, temporaryFolder } from './processes.ts';

/** A private Mosquitto with persistence, as a plant would run it; it writes to disk when it ends. */
export interface MosquittoServer {
  readonly port: number;
  stop(): Promise<void>;
}

const PROGRAM = ['/usr/sbin/mosquitto', '/usr/local/sbin/mosquitto'].find(existsSync) ?? 'mosquitto';
const SETPRIV = '/usr/bin/setpriv';

/** The version of the `mosquitto` on this machine; undefined where there is none. */
export async function mosquittoVersion(): Promise<string | undefined> {
  // Asked for help it ends with an error code.
  const output = await execute(PROGRAM, ['-h']).catch((error: Error) => error.message);
  return output.match(/mosquitto version (\S+)/)?.[1];
}

export async function startMosquitto(): Promise<MosquittoServer> {
  const { path: home, remove: removeHome } = await temporaryFolder('tallyman-bench-mosquitto-');
  const port = await freePort();
  await mkdir(join(home, 'data'));
  const file = join(home, 'mosquitto.conf');
  const settings = [
    'persistence true',
    `persistence_location ${join(home, 'data')}/`,
    'max_queued_messages 0',
    'set_tcp_nodelay true',
    'allow_anonymous true',
    ...(process.getuid?.() === 0 ? ['user root'] : []),
    `listener ${port} 127.0.0.1`,
  ];
  await writeFile(file, `${settings.join('\n')}\n`);
  // Whoever measures is killed when it has answered; the broker must not outlive it.
  const [command, ...args] = existsSync(SETPRIV) ? [SETPRIV, '--pdeathsig', 'KILL', PROGRAM] : [PROGRAM];
  const child = spawn(command as string, [...args, '-c', file], { cwd: home, stdio: 'ignore' });
  endWithUs(child);
  for (const deadline = Date.now() + 10_000; !(await accepts(port)); await sleep(20))
    if (child.exitCode !== null || Date.now() > deadline) throw new Error('mosquitto did not start');
  return {
    port,
    async stop() {
      await stop(child, 'SIGTERM');
      removeHome();
    },
  };
}
