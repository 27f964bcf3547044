/**
 * A private Mosquitto, configured so that it loses nothing while the machine runs; docs/mqtt.md explains each setting.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { delimiter, join, relative, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TallymanError } from '../../engine/errors.ts';
import { within } from '../../engine/resilience/deadline.ts';
import type { Broker } from '../broker.ts';

/** Debian and Homebrew install it outside of a user's PATH. */
const besidePath = ['/usr/sbin', '/usr/local/sbin', '/opt/homebrew/sbin'];
const startLimitMs = 10_000;
const stopLimitMs = 5000;

export function findMosquitto(env: NodeJS.ProcessEnv): string | undefined {
  return [...(env.PATH ?? '').split(delimiter), ...besidePath]
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, 'mosquitto'))
    .find((path) => existsSync(path));
}

export async function startMosquitto(program: string, at: string): Promise<Broker> {
  const folder = resolve(at);
  await mkdir(join(folder, 'data'), { recursive: true });
  const pidFile = join(folder, 'pid');
  const settingsFile = join(folder, 'mosquitto.conf');
  await endLeftover(pidFile, settingsFile);
  const port = await freePort();
  await writeFile(settingsFile, `${settings(folder, port).join('\n')}\n`);
  const child = spawn(program, ['-c', settingsFile], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'pipe'],
    // Ctrl-C is for us: the broker stops last.
    detached: true,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk) => {
      output = (output + chunk).slice(-2000);
    });
  const failed = new Promise<string>((end) => {
    child.once('error', (error) => end(error.message));
    child.once('exit', () => end(output.trim() || 'it ended at once'));
  });
  // Whenever this process ends, except by SIGKILL, it ends the broker, too.
  const onExit = (): void => void child.kill('SIGKILL');
  process.once('exit', onExit);
  const ready = await Promise.race([answers(port), failed]);
  if (ready !== true) {
    child.kill('SIGKILL');
    throw new TallymanError('NO_BROKER', `${program} does not start: ${ready}`);
  }
  await writeFile(pidFile, `${child.pid}\n`);
  return {
    url: `mqtt://127.0.0.1:${port}`,
    where: `${program} on 127.0.0.1:${port}, data in ${relative(process.cwd(), folder)}`,
    close: async () => {
      process.off('exit', onExit);
      await stop(child);
      await rm(pidFile, { force: true });
    },
  };
}

const settings = (folder: string, port: number): string[] => [
  'per_listener_settings false',
  'persistence true',
  `persistence_location ${join(folder, 'data')}/`,
  // Every second or two. With `true` the interval would count changes: it would write all it has after each message.
  'autosave_on_changes false',
  'autosave_interval 1',
  'max_queued_messages 0',
  'set_tcp_nodelay true',
  // Started as root, Mosquitto would switch to a user that cannot read the folder.
  ...(process.getuid?.() === 0 ? ['user root'] : []),
  'allow_anonymous true',
  `listener ${port} 127.0.0.1`,
];

/** A killed demo leaves its broker running, with the data that the next demo needs. */
async function endLeftover(pidFile: string, settingsFile: string): Promise<void> {
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => ''));
  if (!(pid > 1)) return;
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const deadline = Date.now() + stopLimitMs;
    // The process id may belong to another process by now: only one that was started with our file is ours.
    if (commandOf(pid).includes(settingsFile)) process.kill(pid, signal);
    while (commandOf(pid).includes(settingsFile) && Date.now() < deadline) await sleep(50);
  }
  await rm(pidFile, { force: true });
}

function commandOf(pid: number): string {
  try {
    return execFileSync('ps', ['-o', 'args=', '-p', String(pid)], { encoding: 'utf8', stdio: 'pipe' });
  } catch {
    return '';
  }
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await within(ended, stopLimitMs).catch(() => child.kill('SIGKILL'));
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  await once(server.close(), 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

async function answers(port: number): Promise<true | string> {
  for (const deadline = Date.now() + startLimitMs; Date.now() < deadline; await sleep(20)) {
    const socket = connect(port, '127.0.0.1');
    const open = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (open) return true;
  }
  return `it does not answer on port ${port}`;
}
