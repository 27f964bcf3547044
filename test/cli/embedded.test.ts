import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { useEmbedded, visit } from '../../src/runtime/embedded.ts';
import { createLogger } from '../../src/runtime/logger.ts';
import { scratch, start } from './support.ts';

const quiet = createLogger({ level: 'silent' });
const cli = (cwd: string, ...args: string[]) => start('src/cli/main.ts', args, { cwd }).ended;

test('without DATABASE_URL a command starts the embedded server, and stops it again', async () => {
  const cwd = await scratch();
  expect(await cli(cwd, 'config')).toMatchObject({ code: 0 });
  expect(existsSync(join(cwd, '.tallyman'))).toBe(false);
  const first = await cli(cwd, 'jobs', 'list');
  expect(first).toMatchObject({ code: 0, stdout: 'No jobs.\n' });
  expect(first.stderr).toContain('DATABASE_URL is not set: made an embedded PostgreSQL');
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
