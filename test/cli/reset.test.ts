import { existsSync } from 'node:fs';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { useEmbedded } from '../../src/host/process/embedded.ts';
import { createLogger } from '../../src/host/process/logger.ts';
import { cliOn, complaint, scratch, start } from './support.ts';

const quiet = createLogger({ level: 'silent' });
const cli = (cwd: string, ...args: string[]) => start('src/cli/main.ts', args, { cwd }).ended;

async function sql(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(text).finally(() => client.end());
}

/** On the embedded database of a folder, while no other process runs it. */
async function alone(cwd: string, text: string): Promise<void> {
  const server = await useEmbedded(join(cwd, '.tallyman/postgres'), 'own', quiet);
  await sql(server.url, text).finally(() => server.close());
}

test('an embedded database that this program was not made for: the error names reset, and reset is the way out', async () => {
  const cwd = await scratch();
  const secret = join(cwd, '.tallyman/secret.key');
  expect(await cli(cwd, 'migrate')).toMatchObject({ code: 0 });
  await writeFile(secret, 'kept');
  await alone(
    cwd,
    `select tallyman.register_kind('k'); select tallyman.enqueue('k');
     update tallyman.migrations set checksum = 'other' where component = 'engine' and version = 1`,
  );
  const refused = await cli(cwd, 'jobs', 'list');
  expect(complaint(refused)).toMatch(
    /Migration "engine\/0001_tables" .* embedded development database in \.tallyman\/postgres.* run: tallyman reset\n$/s,
  );
  expect(refused.code).toBe(4);
  expect(complaint(await cli(cwd, 'migrate'))).toContain('run: tallyman reset');
  const doctor = await cli(cwd, 'doctor');
  expect(doctor.code).toBe(5);
  expect(doctor.stdout).toMatch(/fail {2}migrations: .*tallyman reset/);

  // Without a terminal it does not ask, and does nothing.
  const unasked = await cli(cwd, 'reset');
  expect(complaint(unasked)).toContain('add --yes to do it without being asked');
  expect(unasked.code).toBe(2);
  expect((await cli(cwd, 'jobs', 'list')).code).toBe(4);

  expect(await cli(cwd, 'reset', '--yes')).toMatchObject({
    code: 0,
    stdout: 'Deleted the embedded database in .tallyman/postgres. The next command makes an empty one.\n',
    stderr: '',
  });
  expect(existsSync(secret)).toBe(true);
  const left = await readdir(join(cwd, '.tallyman/postgres'));
  expect(left.filter((name) => name === 'data' || name.startsWith('init-'))).toEqual([]);
  expect(await cli(cwd, 'reset', '--yes')).toMatchObject({
    code: 0,
    stdout: 'There is no embedded database in .tallyman/postgres.\n',
  });
  expect(await cli(cwd, 'jobs', 'list')).toMatchObject({ code: 0, stdout: 'No jobs.\n' });
});

test('a newer, breaking migration in the embedded database: update, or reset', async () => {
  const cwd = await scratch();
  await cli(cwd, 'migrate');
  await alone(
    cwd,
    `insert into tallyman.migrations (component, version, name, checksum, breaking, release)
     values ('engine', 9999, '9999_other', '', true, '99.0.0')`,
  );
  const refused = await cli(cwd, 'jobs', 'list');
  expect(complaint(refused)).toMatch(/Update this program to 99\.0\.0 or later.*run: tallyman reset/s);
  expect(refused.code).toBe(4);
});

test('reset leaves a database alone that is not the embedded one', async () => {
  const cwd = await scratch();
  const ended = await cliOn('postgres://somebody:secret@127.0.0.1:1/plant', { cwd })('reset', '--yes');
  expect(complaint(ended)).toMatch(/DATABASE_URL\) is set.*embedded development database only/);
  expect(ended.stderr).not.toContain('secret');
  expect(ended.code).toBe(2);
});

test('reset refuses while another process runs the server, and while one uses a server whose owner was killed', async () => {
  const cwd = await scratch();
  const dataDir = join(cwd, '.tallyman/postgres');
  await cli(cwd, 'migrate');
  const owner = start('test/cli/embedded-owner.ts', [dataDir], { cwd });
  const url = await owner.said(/url (\S+)/);
  const held = await cli(cwd, 'reset', '--yes');
  expect(complaint(held)).toMatch(
    new RegExp(
      `Nothing was deleted: .* is run by process ${owner.child.pid} .*Stop the programs that use it`,
    ),
  );
  expect(held.code).toBe(4);
  await sql(url, `select tallyman.register_kind('k'); select tallyman.enqueue('k')`);

  const guest = new pg.Client({ connectionString: url });
  guest.on('error', () => {});
  await guest.connect();
  onTestFinished(() => guest.end().catch(() => {}));
  owner.child.kill('SIGKILL');
  await owner.ended;
  const used = await cli(cwd, 'reset', '--yes');
  expect(complaint(used)).toMatch(/Nothing was deleted: .* is run by process \d+, which has 1 connection\./);
  expect(used.code).toBe(4);
  expect((await guest.query('select count(*)::integer as jobs from tallyman.jobs')).rows).toEqual([
    { jobs: 1 },
  ]);

  // Nobody is left: the server that the killed process left behind is stopped, and its data deleted.
  await guest.end();
  expect(await cli(cwd, 'reset', '--yes')).toMatchObject({ code: 0, stderr: '' });
  await expect(sql(url, 'select 1')).rejects.toThrow();
  expect(await cli(cwd, 'jobs', 'list')).toMatchObject({ code: 0, stdout: 'No jobs.\n' });
});
