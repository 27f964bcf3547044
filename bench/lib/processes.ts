import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What must be ended when the bench ends, however it ends. */
const running = new Map<ChildProcess, NodeJS.Signals>();
const cleanups = new Set<() => void>();

process.on('exit', () => {
  for (const [child, signal] of running) child.kill(signal);
  for (const cleanup of cleanups) cleanup();
});
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.once(signal, async () => {
    // Folders can be removed only once nobody writes into them any more.
    await Promise.all([...running].map(([child, signal]) => stop(child, signal, 5_000)));
    process.exit(130);
  });
}

/** Ends `child` with this process if nobody ended it before. */
export function endWithUs(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): void {
  running.set(child, signal);
  child.once('exit', () => running.delete(child));
}

/** Runs `cleanup` (synchronous) when this process ends; returns a function that runs it now instead. */
function atExit(cleanup: () => void): () => void {
  cleanups.add(cleanup);
  return () => {
    if (cleanups.delete(cleanup)) cleanup();
  };
}

/** A new folder that is gone after `remove`, or at the end of this process. */
export async function temporaryFolder(prefix: string): Promise<{ path: string; remove: () => void }> {
  const path = await mkdtemp(join(tmpdir(), prefix));
  const remove = atExit(() => rmSync(path, { recursive: true, force: true }));
  return { path, remove };
}

/** Runs a command to its end; throws with what it wrote if it fails. */
export async function execute(
  command: string,
  args: readonly string[],
  options: { readonly uid?: number; readonly gid?: number; readonly cwd?: string } = {},
): Promise<string> {
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    output += chunk;
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`${command} ended with code ${code}:\n${output}`);
  return output;
}

/** Asks `child` to stop, and insists after `patience` milliseconds. */
export async function stop(child: ChildProcess, signal: NodeJS.Signals, patience = 20_000): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  const insist = setTimeout(() => child.kill('SIGKILL'), patience);
  child.kill(signal);
  await exited;
  clearTimeout(insist);
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('No free port on 127.0.0.1.');
  return address.port;
}

/** Whether somebody listens there. */
export function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
