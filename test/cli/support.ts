import { type ChildProcess, spawn } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { onTestFinished } from 'vitest';
import { defineKind, PermanentError, Tallyman } from '../../src/index.ts';

const root = resolve(import.meta.dirname, '../..');
export const node = join(root, 'node_modules/.bin/node');
export const inRoot = (path: string): string => join(root, path);

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Started {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  /** Resolves once stdout and stderr together contain the text, with its first group if it has one. */
  said(text: string | RegExp): Promise<string>;
}

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly input?: string;
}

/** Without the variables of whoever runs the tests, in a folder that has no configuration and no database. */
export function start(script: string, args: readonly string[], options: StartOptions = {}): Started {
  const child = spawn(node, [inRoot(script), ...args], {
    cwd: options.cwd ?? tmpdir(),
    env: { PATH: process.env.PATH ?? '', NO_COLOR: '1', ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  let heard = (): void => {};
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
    heard();
  });
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
    heard();
  });
  child.stdin.on('error', () => {});
  child.stdin.end(options.input ?? '');
  const ended = new Promise<Ended>((done) =>
    child.on('close', (code, signal) => done({ code, signal, stdout, stderr })),
  );
  // A test that failed half-way leaves nothing running.
  onTestFinished(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), 8000);
    await ended;
    clearTimeout(late);
  });
  return {
    child,
    ended,
    said: (text) =>
      new Promise((done, fail) => {
        heard = () => {
          const all = stdout + stderr;
          const found = typeof text === 'string' ? (all.includes(text) ? [text] : null) : text.exec(all);
          if (found) done(found[1] ?? found[0] ?? '');
        };
        heard();
        void ended.then(() => fail(new Error(`it ended without saying ${text}:\n${stdout}\n${stderr}`)));
      }),
  };
}

/** Runs `tallyman …` to its end. */
export type Cli = (...args: string[]) => Promise<Ended>;

export const cliOn =
  (url: string, options: StartOptions = {}): Cli =>
  (...args) =>
    start('src/cli/main.ts', args, { ...options, env: { DATABASE_URL: url, ...options.env } }).ended;

/** What is promised of every command that cannot do what it was asked: one message, no stack trace, clean stdout. */
export function complaint(ended: Ended): string {
  if (/^\s+at /m.test(ended.stderr)) throw new Error(`a stack trace:\n${ended.stderr}`);
  if (ended.stdout !== '') throw new Error(`something on stdout:\n${ended.stdout}`);
  return ended.stderr;
}

export async function scratch(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-cli-'));
  // As root the server runs under another account, and would go elsewhere with its data if that could not enter.
  await chmod(folder, 0o711);
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

export const ship = defineKind<{ parcel: string; fail?: string }>({
  name: 'ship',
  queue: 'shipping',
  retry: { maxAttempts: 1 },
  handler: ({ fail }) => {
    if (fail === 'for good') throw new PermanentError('NO_ADDRESS', 'the parcel has no address');
    if (fail) throw new Error(fail);
  },
});

export const weigh = defineKind<{ parcel: string; fail?: string }>({
  name: 'weigh',
  queue: 'scales',
  retry: { maxAttempts: 1 },
  lane: { key: () => 'scale-1', policy: 'block' },
  handler: ({ fail }) => {
    if (fail) throw new Error(fail);
  },
});

export async function openTallyman(url: string): Promise<Tallyman> {
  return Tallyman.open({ databaseUrl: url });
}

/** Runs what is due until `done` says so, then stops. */
export async function work(tallyman: Tallyman, done: () => Promise<boolean>): Promise<void> {
  const worker = tallyman.worker({ kinds: [ship, weigh], pollIntervalMs: 50 });
  await worker.start();
  while (!(await done())) await new Promise((later) => setTimeout(later, 20));
  await worker.stop();
}
