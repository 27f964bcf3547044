import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { useEmbedded, visit } from '../../src/host/process/embedded.ts';
import { createLogger } from '../../src/host/process/logger.ts';
import type { Tallyman } from '../../src/index.ts';
import { type Ended, inRoot, openTallyman, type Started, scratch, start } from './support.ts';
import { slow } from './worker-kinds.ts';

const quiet = createLogger({ level: 'silent' });
const cli = (cwd: string, ...args: string[]) => start('src/cli/main.ts', args, { cwd }).ended;

test('without DATABASE_URL a command starts the embedded server, and stops it again', async () => {
  const cwd = await scratch();
  expect(await cli(cwd, 'config')).toMatchObject({ code: 0 });
  expect(existsSync(join(cwd, '.tallyman'))).toBe(false);
  const first = await cli(cwd, 'jobs', 'list');
  expect(first).toMatchObject({ code: 0, stdout: 'No jobs.\n' });
  expect(first.stderr).toContain('DATABASE_URL is not set: created an embedded PostgreSQL');
  expect(await cli(cwd, 'jobs', 'list')).toMatchObject({ code: 0, stdout: 'No jobs.\n', stderr: '' });
  expect(await visit(join(cwd, '.tallyman/postgres'))).toBeUndefined();
});

test('commands join the server that another process runs, and leave it running', async () => {
  const cwd = await scratch();
  const dataDir = join(cwd, '.tallyman/postgres');
  const owner = await useEmbedded(dataDir, 'own', quiet);
  onTestFinished(() => owner.close());
  expect(owner.started).toBe(true);
  const guest = await visit(dataDir);
  expect(guest).toMatchObject({ url: owner.url, port: owner.port });
  await guest?.close();
  const both = await Promise.all([cli(cwd, 'migrate'), cli(cwd, 'doctor')]);
  expect(both[0]).toMatchObject({ code: 0, stderr: '' });
  expect(both[1].stdout).toContain('(run by another process)');
  expect(await cli(cwd, 'jobs', 'list')).toMatchObject({ code: 0, stdout: 'No jobs.\n', stderr: '' });
  const again = await visit(dataDir);
  expect(again).toBeDefined();
  await again?.close();

  // Whoever wants it for himself is told who has it.
  await expect(useEmbedded(dataDir, 'own', quiet)).rejects.toMatchObject({ code: 'EMBEDDED_IN_USE' });
  const joined = await useEmbedded(dataDir, 'either', quiet);
  expect(joined).toMatchObject({ started: false, url: owner.url });
  await joined.close();
});

test('commands at the same time share the server that one of them has started', async () => {
  const cwd = await scratch();
  await cli(cwd, 'jobs', 'list');
  const all = await Promise.all(Array.from({ length: 5 }, () => cli(cwd, 'queues', 'list', '--json')));
  for (const { code, stdout, stderr } of all)
    expect({ code, items: JSON.parse(stdout || 'null')?.items, stderr }).toEqual({
      code: 0,
      items: expect.any(Array),
      stderr: '',
    });
});

describe('a worker that uses the server of another process', () => {
  const worker = (cwd: string, queue: string): Started =>
    start('src/cli/main.ts', ['worker', inRoot('test/cli/worker-kinds.ts'), '--queues', queue], { cwd });

  async function ownerAndGuest(cwd: string): Promise<{ owner: Started; guest: Started; postmaster: number }> {
    const owner = worker(cwd, 'stubborn');
    const postmaster = Number(await owner.said(/"pid":(\d+),"port"/));
    await owner.said('worker started');
    const guest = worker(cwd, 'default');
    await guest.said('worker started');
    await works(cwd, guest, 10);
    return { owner, guest, postmaster };
  }

  async function visiting<T>(cwd: string, work: (tallyman: Tallyman) => Promise<T>): Promise<T> {
    const stay = await useEmbedded(join(cwd, '.tallyman/postgres'), 'join', quiet);
    expect(stay.started).toBe(false);
    const tallyman = await openTallyman(stay.url);
    try {
      return await work(tallyman);
    } finally {
      await tallyman.close();
      await stay.close();
    }
  }
  const enqueued = (cwd: string, ms: number): Promise<string> =>
    visiting(cwd, async (tallyman) => (await tallyman.enqueue(slow, { ms })).id);
  const jobIn = (cwd: string, id: string) => visiting(cwd, (tallyman) => tallyman.jobs.get(id));

  /** Only the guest works on this queue. */
  async function works(cwd: string, guest: Started, ms: number): Promise<void> {
    await enqueued(cwd, ms);
    await guest.said(`ended ${ms}`);
  }

  const linesWith = (text: string, { stderr }: Ended): number =>
    stderr.split('\n').filter((line) => line.includes(text)).length;

  test.each([
    { how: 'stops', kill: (owner: Started) => owner.child.kill('SIGTERM') },
    {
      how: 'is killed together with the server',
      kill: (owner: Started, postmaster: number) => {
        owner.child.kill('SIGKILL');
        process.kill(postmaster, 'SIGKILL');
      },
    },
  ])(
    'starts it again when the owner $how, says so in one line, and stops it at its own end',
    async ({ kill }) => {
      const cwd = await scratch();
      const { owner, guest, postmaster } = await ownerAndGuest(cwd);
      const running = await enqueued(cwd, 3_000);
      await guest.said('began 3000');
      kill(owner, postmaster);
      await owner.ended;
      await guest.said('embedded PostgreSQL is running');
      await works(cwd, guest, 11);
      await guest.said('ended 3000');
      await expect.poll(() => jobIn(cwd, running)).toMatchObject({ status: 'SUCCEEDED', attempts: 1 });
      guest.child.kill('SIGTERM');
      const ended = await guest.ended;
      expect(ended.code).toBe(0);
      expect(linesWith('starting it here', ended)).toBe(1);
      expect(ended.stderr.split('embedded PostgreSQL is running')[1]).not.toContain('ECONNREFUSED');
      expect(await visit(join(cwd, '.tallyman/postgres'))).toBeUndefined();
    },
  );

  test('does not notice when the owner alone is killed', async () => {
    const cwd = await scratch();
    const { owner, guest } = await ownerAndGuest(cwd);
    owner.child.kill('SIGKILL');
    await owner.ended;
    await works(cwd, guest, 12);
    guest.child.kill('SIGTERM');
    const ended = await guest.ended;
    expect(ended.code).toBe(0);
    expect(linesWith('"level":40', ended)).toBe(0);
    await (await useEmbedded(join(cwd, '.tallyman/postgres'), 'own', quiet)).close();
  });

  test('and another like it: one starts the server, both go on', async () => {
    const cwd = await scratch();
    const { owner, guest } = await ownerAndGuest(cwd);
    const serve = start('src/cli/main.ts', ['serve', '--port', '0', '--only', 'api,webhooks'], { cwd });
    const url = await serve.said(/"url":"([^"]+)"/);
    owner.child.kill('SIGTERM');
    expect((await owner.ended).code).toBe(0);
    await Promise.race([guest, serve].map((each) => each.said('embedded PostgreSQL is running')));
    await Promise.race([guest, serve].map((each) => each.said('another process has started')));
    await works(cwd, guest, 13);
    await expect.poll(async () => (await fetch(`${url}/v1/queues`)).status).toBe(200);
  });

  test('ends with one clear error and exit code 4 when the server cannot be started again', async () => {
    const cwd = await scratch();
    const { owner, guest, postmaster } = await ownerAndGuest(cwd);
    owner.child.kill('SIGKILL');
    await owner.ended;
    await rm(join(cwd, '.tallyman/postgres/data/global/pg_control'));
    process.kill(postmaster, 'SIGKILL');
    const ended = await guest.ended;
    expect(ended.code).toBe(4);
    expect(linesWith('"level":50', ended)).toBe(1);
    expect(ended.stderr).toMatch(/"code":"EMBEDDED_LOST".*is gone.*start this process again.*did not start/);
  });
});
