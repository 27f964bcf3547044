import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Tallyman } from '../../src/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { cliOn, complaint, inRoot, openTallyman, type Started, scratch, start } from './support.ts';
import kinds, { slow } from './worker-kinds.ts';

const [, stubborn = slow] = kinds;
const module = inRoot('test/cli/worker-kinds.ts');
let fresh: FreshDatabase;
let tallyman: Tallyman;

beforeEach(async () => {
  fresh = await freshDatabase();
  tallyman = await openTallyman(fresh.url);
});

afterEach(async () => {
  await tallyman.close();
  await fresh.drop();
});

const worker = (args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): Started =>
  start('src/cli/main.ts', ['worker', module, ...args], { env: { DATABASE_URL: fresh.url, ...env } });

const state = async (id: string) => {
  const job = await tallyman.jobs.get(id);
  return { status: job?.status, attempts: job?.attempts };
};

test('SIGTERM: what runs finishes, the rest is handed back without costing an attempt, exit code 0', async () => {
  const running = await tallyman.enqueue(slow, { ms: 1500 });
  const waiting = await tallyman.enqueue(slow, { ms: 10 });
  const { child, ended, said } = worker(['--concurrency', '1']);
  await said('began 1500');
  child.kill('SIGTERM');
  const { code, signal, stdout } = await ended;
  expect({ code, signal }).toEqual({ code: 0, signal: null });
  expect(stdout).toBe('began 1500\nended 1500\n');
  expect(await state(running.id)).toEqual({ status: 'SUCCEEDED', attempts: 1 });
  expect(await state(waiting.id)).toEqual({ status: 'QUEUED', attempts: 0 });
});

test('a handler that does not come to its end is given up after jobs.stopTimeoutMs', async () => {
  const { id } = await tallyman.enqueue(stubborn, { ms: 60_000 });
  const { child, ended, said } = worker([], { TALLYMAN_STOP_TIMEOUT_MS: '300' });
  await said('began 60000');
  child.kill('SIGINT');
  expect((await ended).code).toBe(0);
  expect(await state(id)).toEqual({ status: 'QUEUED', attempts: 0 });
});

test.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)('a second %s ends it at once with exit code %i', async (name, code) => {
  await tallyman.enqueue(stubborn, { ms: 60_000 });
  const { child, ended, said } = worker();
  await said('began 60000');
  child.kill(name);
  // The echo of the first (npm passes on what the terminal has sent too) does not count. Sent at once: what comes later is no echo.
  child.kill(name);
  await said('a second signal ends it at once');
  await new Promise((later) => setTimeout(later, 900));
  expect(child.exitCode).toBeNull();
  child.kill(name);
  expect((await ended).code).toBe(code);
});

test('--queues keeps it to those queues', async () => {
  const other = await tallyman.enqueue(stubborn, { ms: 0 });
  const { id } = await tallyman.enqueue(slow, { ms: 1 });
  const { child, ended, said } = worker(['--queues', 'default=1']);
  await said('ended 1');
  child.kill('SIGTERM');
  await ended;
  expect((await state(id)).status).toBe('SUCCEEDED');
  expect((await state(other.id)).status).toBe('QUEUED');
});

test('it says where it runs, without the password, as JSON lines on stderr', async () => {
  const { child, ended, said } = worker();
  await said('worker started');
  child.kill('SIGTERM');
  const { stderr, stdout } = await ended;
  expect(stdout).toBe('');
  const lines = stderr
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(lines.map(({ msg }) => msg)).toEqual(
    expect.arrayContaining(['starting', 'worker started', 'worker stopped']),
  );
  expect(lines[0].database).toContain('PostgreSQL at postgres');
  const { password } = new URL(fresh.url);
  if (password) expect(stderr).not.toContain(password);
});

test.each([
  { content: undefined, code: 1, says: 'cannot load' },
  { content: 'export const nothing = 1;', code: 2, says: 'exports no kinds' },
  { content: 'export default {', code: 1, says: 'cannot load' },
  { content: 'throw new Error("no printer")', code: 1, says: 'no printer' },
])('a module with $content is refused', async ({ content, code, says }) => {
  const path = join(await scratch(), 'kinds.mjs');
  if (content !== undefined) await writeFile(path, content);
  const ended = await cliOn(fresh.url)('worker', path);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(code);
});

test.each([
  { args: ['worker'], says: "missing required argument 'module'" },
  { args: ['worker', module, '--concurrency', 'many'], says: 'Expected a whole number' },
  { args: ['worker', module, '--queues', 'a=none'], says: 'Expected names such as' },
])('$args is wrong usage', async ({ args, says }) => {
  const ended = await cliOn(fresh.url)(...args);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(2);
});
