/**
 * A private server for tests: on a free loopback port, in a temporary folder, under a process of our own.
 * Services on the standard ports belong to others and are never touched.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export interface ServiceOptions {
  readonly name: string;
  readonly debianPackage: string;
  /** The program, by name or absolute path. */
  readonly program: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly port: number;
  readonly folder: string;
  readonly url: string;
  /** True once the server answers; asked again until then. */
  readonly ready: () => Promise<boolean>;
}

/** A broker may take a minute on a busy machine. */
const startLimitMs = 100_000;

export class Service implements AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly #options: ServiceOptions;
  #process: ChildProcess | undefined;
  #output = '';

  constructor(options: ServiceOptions) {
    this.#options = options;
    this.url = options.url;
    this.port = options.port;
  }

  /** Does nothing when it runs already. Keeps port and data over a restart. */
  async start(): Promise<void> {
    if (this.#process !== undefined) return;
    const { name, args, env, folder, ready } = this.#options;
    const program = findProgram(this.#options.program, this.#options.debianPackage);
    const child = launch(program, args, { folder, ...(env !== undefined && { env }) });
    this.#process = child;
    this.#output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        this.#output = (this.#output + chunk.toString()).slice(-4_000);
      });
    }
    const deadline = Date.now() + startLimitMs;
    while (!(await ready().catch(() => false))) {
      if (child.exitCode !== null || child.signalCode !== null || Date.now() > deadline) {
        await this.kill();
        throw new Error(`${name} did not start:\n${this.#output}`);
      }
      await sleep(20);
    }
  }

  stop(): Promise<void> {
    return this.#end('SIGTERM');
  }

  kill(): Promise<void> {
    return this.#end('SIGKILL');
  }

  /**
   * Frozen: the system goes on accepting connections for it, nothing answers. It is so when this returns: the signal alone
   * takes a moment to reach every thread.
   */
  pause(): void {
    this.#process?.kill('SIGSTOP');
    const deadline = Date.now() + 5000;
    while (!isFrozen(this.#process?.pid) && Date.now() < deadline);
  }

  resume(): void {
    this.#process?.kill('SIGCONT');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await removeFolder(this.#options.folder);
  }

  async #end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child !== undefined) await end(child, signal);
  }
}

export async function end(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  if (signal === 'SIGTERM') child.kill('SIGCONT');
  await exited;
}

/** Starts a program that ends with us, also when we are killed. */
export function launch(
  program: string,
  args: readonly string[],
  { folder, env }: { folder: string; env?: Readonly<Record<string, string>> },
): ChildProcess {
  const setpriv = '/usr/bin/setpriv';
  const [command, all] = existsSync(setpriv)
    ? [setpriv, ['--pdeathsig', 'KILL', program, ...args]]
    : [program, [...args]];
  const child = spawn(command, all, {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const onExit = (): void => void child.kill('SIGKILL');
  process.once('exit', onExit);
  child.once('exit', () => process.off('exit', onExit));
  return child;
}

export function findProgram(program: string, debianPackage: string): string {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin'];
  const found = (program.startsWith('/') ? [program] : folders.map((folder) => join(folder, program))).find(
    existsSync,
  );
  if (found === undefined) {
    throw new Error(`${program} is not on this machine: apt-get install ${debianPackage}`);
  }
  return found;
}

export function temporaryFolder(name: string): Promise<string> {
  return mkdtemp(join(tmpdir(), `tallyman-${name}-`));
}

export function removeFolder(folder: string): Promise<void> {
  return rm(folder, { recursive: true, force: true });
}

/** Ports that were free a moment ago, all different. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => {
    const address = server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  });
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}

/** Sends `greeting` and answers the first bytes that come back, or undefined when none do within `limitMs`. */
export async function firstBytes(port: number, greeting: string, limitMs = 500): Promise<string | undefined> {
  const socket = connect(port, '127.0.0.1');
  socket.setTimeout(limitMs, () => socket.destroy());
  socket.on('error', () => {});
  if (greeting !== '') socket.write(greeting);
  try {
    for await (const chunk of socket) return String(chunk);
    return undefined;
  } finally {
    socket.destroy();
  }
}

function isFrozen(pid: number | undefined): boolean {
  const threads = `/proc/${pid}/task`;
  if (!existsSync(threads)) return true;
  try {
    const stats = readdirSync(threads).map((thread) => readFileSync(join(threads, thread, 'stat'), 'latin1'));
    return stats.every((stat) => /\) T /.test(stat));
  } catch {
    // A thread ended meanwhile.
    return false;
  }
}
