import { execFile } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { cliOn, complaint, inRoot, node, scratch, start } from '../../cli/support.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { testNode } from './rpc/node.ts';

/** A line of `facts append --lines` with an object as it is written. */
const lineWith = (id: string, object: string): string =>
  `{"message_id": "${id}", "subject": "order:1", "predicate": "is", "object": ${object}}`;

const plantEnv = (folder: string) => ({
  TALLYMAN_BOUNDARY_ZONE: 'plant-a',
  TALLYMAN_BOUNDARY_ZONES: 'enterprise',
  TALLYMAN_BOUNDARY_RECEIPT_KEY_FILE: join(folder, 'never-read.key'),
  TALLYMAN_BOUNDARY_OBJECTS_FOLDER: join(folder, 'objects'),
});

/** A node of the plant that knows the enterprise, with nothing that serves. */
async function plant() {
  const { url } = await emptyDatabase();
  const folder = await scratch();
  const options = { env: { DATABASE_URL: url, ...plantEnv(folder) }, cwd: folder };
  const cli = cliOn(url, options);
  expect((await cli('migrate')).code).toBe(0);
  const json = async (...args: string[]): Promise<unknown> => {
    const { stdout, stderr, code } = await cli(...args, '--json');
    expect([stderr, code]).toEqual(['', 0]);
    return JSON.parse(stdout);
  };
  return { cli, json, folder, options };
}

const done = (id: string, ...more: string[]): string[] => [
  ...['facts', 'append', '--message-id', id, '--subject', `work_order:${id}`, '--predicate', 'has_state'],
  ...['--object', '{"state": "done"}', ...more],
];

test('BND-2, BND-3, BND-7: append, also by lines that nothing is changed in, find, fetch and confirm what was written, tail; consumers are listed, sought and deleted', async () => {
  const { cli, json, folder, options } = await plant();
  expect(await json(...done('a', '--label', 'line=4', '--label', 'shift=2', '--to', 'Enterprise'))).toEqual({
    offset: 1,
    existing: false,
  });
  expect(await json(...done('a'))).toEqual({ offset: 1, existing: true });
  const other = await cli(...done('a'), '--correlation-id', 'c', '--predicate', 'x');
  expect(complaint(other)).toContain("option '--predicate <name>' is given twice");
  const conflict = await cli(
    'facts',
    'append',
    '--message-id',
    'a',
    '--subject',
    'order:1',
    '--predicate',
    'is',
    '--object',
    '2',
  );
  expect(complaint(conflict)).toContain('message id "a" of zone "plant-a" was used before for other content');
  expect(conflict.code).toBe(1);
  expect(complaint(await cli(...done('b', '--to', 'enterprize')))).toContain('did you mean "enterprise"?');
  expect(complaint(await cli('facts', 'append', '--subject', 'a:b'))).toContain('a fact needs --message-id');

  const lines = ['b', 'c', 'd'].map((message_id) => ({
    message_id,
    subject: 'order:1',
    predicate: 'is',
    object: message_id,
  }));
  const file = join(folder, 'facts.jsonl');
  await writeFile(file, lines.map((line) => JSON.stringify(line)).join('\n'));
  expect(await json('facts', 'append', '--lines', file)).toMatchObject({
    items: [{ message_id: 'b', offset: 2 }, { offset: 3 }, { message_id: 'd', offset: 4, existing: false }],
  });
  await writeFile(file, `\n\n${JSON.stringify({ ...lines[0], object: 'other' })}\n${lineWith('e', '1')}\n`);
  const some = await cli('facts', 'append', '--lines', file);
  expect([some.code, some.stdout]).toEqual([1, '1 fact appended, 1 refused\n']);
  expect(some.stderr).toContain('error: line 3: ');
  await writeFile(file, `${lineWith('good', '1')}\n\n${lineWith('x', '9007199254740993')}\n`);
  const changed = await cli('facts', 'append', '--lines', file);
  expect(complaint(changed)).toMatch(
    /^error: line 3: has the integer 9007199254740993.*; nothing was appended\n$/,
  );
  expect(changed.code).toBe(2);

  expect(await json('facts', 'find', 'a')).toMatchObject({
    offset: 1,
    trimmed: false,
    fact: { subject: 'work_order:a', object: { state: 'done' }, labels: { line: '4', shift: '2' } },
  });
  expect((await cli('facts', 'find', 'zzz')).code).toBe(3);

  const fetching = ['facts', 'fetch', '--to', 'enterprise', '--consumer', 'erp', '-n', '2'] as const;
  const fetch = (...more: string[]) => json(...fetching, ...more);
  // What was not written is not confirmed.
  const unread = start('src/cli/main.ts', [...fetching, '--confirm'], options);
  unread.child.stdout?.destroy();
  expect(await unread.ended).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('nothing was confirmed'),
  });
  const full = 'exec "$0" "$@" > /dev/full';
  const args = ['-c', full, node, inRoot('src/cli/main.ts'), ...fetching, '--confirm'];
  const env = { PATH: process.env.PATH, ...options.env };
  await expect(promisify(execFile)('sh', args, { ...options, env })).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^error: standard output cannot be written: ENOSPC.*\n$/),
  });
  expect(await fetch()).toMatchObject({ items: [{ offset: 1 }, { offset: 2 }], cursor: 0, backlog: 3 });
  expect(await fetch('--confirm')).toMatchObject({
    items: [{ offset: 1 }, { offset: 2 }],
    cursor: 2,
    backlog: 3,
  });
  expect(await fetch('--confirm')).toMatchObject({
    items: [{ offset: 3 }, { offset: 4 }],
    cursor: 4,
    backlog: 1,
  });
  const tail = await cli('facts', 'tail', '--to', 'enterprise', '--after', '3', '--limit', '2', '--json');
  expect(
    tail.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).message_id),
  ).toEqual(['d', 'e']);

  expect(await json('consumers', 'list')).toMatchObject({ items: [{ name: 'erp', cursor: 4, backlog: 1 }] });
  expect(await json('consumers', 'seek', 'erp', 'first', '--to', 'enterprise')).toEqual({
    name: 'erp',
    cursor: 0,
  });
  expect(await fetch()).toMatchObject({ items: [{ offset: 1 }, { offset: 2 }] });
  const peer = await cli('consumers', 'delete', 'peer:enterprise', '--to', 'enterprise');
  expect(complaint(peer)).toContain('add --force');
  expect(await json('consumers', 'delete', 'erp', '--to', 'enterprise')).toEqual({ deleted: 'erp' });
  expect((await cli('consumers', 'delete', 'erp', '--to', 'enterprise')).code).toBe(3);
  expect(await json('zones', 'status')).toMatchObject({
    zone: 'plant-a',
    items: [
      { from_zone: 'plant-a', to_zone: 'enterprise', carried_by: 'nobody', last_offset: 5, backlog: 5 },
    ],
  });
  expect((await cli('zones', 'status')).stdout).toContain('No consumer has confirmed anything: 5 facts wait');
}, 300_000);

test('BND-4: where nothing was received yet there is no epoch to accept, and the command says so', async () => {
  const { cli, json } = await plant();
  const token = (after: number) => `${randomUUID()}:${after}:${'ab'.repeat(32)}`;
  const accept = ['zones', 'accept-epoch', 'enterprise'] as const;
  expect((await cli(...accept, token(0))).stdout).toContain('There is nothing to accept');
  expect(await json(...accept, token(0))).toMatchObject({ existing: true, frontier: 0 });
  expect(complaint(await cli(...accept, token(5)))).toContain('zones new-epoch plant-a --after 0');
}, 300_000);

test('BND-8: facts quarantine goes through all there is, a page at a time, also where an offset has two epochs', async () => {
  const { url, store } = await testNode('plant-a');
  const folder = await scratch();
  const cli = cliOn(url, { env: plantEnv(folder), cwd: folder });
  const entry = (offset: number, epoch: string) => ({
    ...{
      buffer: 'store' as const,
      from: 'plant-a',
      to: 'enterprise',
      epoch,
      offset,
      messageId: `m${offset}`,
    },
    ...{ reason: 'too_large', message: 'too large', text: '{}', quarantinedAt: new Date() },
  });
  const [former = '', later = ''] = [randomUUID(), randomUUID()].sort();
  await store.quarantine('default', [entry(1, former), entry(1, later), entry(2, later)]);
  const page = async (...args: string[]) =>
    JSON.parse((await cli('facts', 'quarantine', '--to', 'enterprise', '--json', ...args)).stdout);
  const { items, next_cursor } = await page('-n', '1');
  expect(items).toMatchObject([{ offset: 1, epoch: former }]);
  expect(await page('--cursor', next_cursor)).toMatchObject({
    items: [
      { offset: 1, epoch: later },
      { offset: 2, epoch: later },
    ],
    next_cursor: null,
  });
}, 120_000);

test('BND-5, BND-6: objects put and get, and a fact that names one', async () => {
  const { cli, json, folder } = await plant();
  const bytes = randomBytes(200_000);
  const source = join(folder, 'order.pdf');
  await writeFile(source, bytes);
  const put = () =>
    json('objects', 'put', 'batch-files', 'order.pdf', source, '--media-type', 'application/pdf');
  const stored = await put();
  expect(stored).toMatchObject({ size: 200_000, digest: expect.stringMatching(/^sha256:/) });
  expect(await put()).toEqual(stored);
  const attach = (key: string, ...more: string[]) => [
    'facts',
    'append',
    '--message-id',
    key,
    '--subject',
    'order:1',
    '--predicate',
    'has_file',
    '--attach',
    `batch-files/${key}`,
    ...more,
  ];
  expect((await cli(...attach('nothing.pdf'))).code).toBe(3);
  expect(await json(...attach('order.pdf'))).toEqual({ offset: 1, existing: false });
  expect(await json('facts', 'find', 'order.pdf')).toMatchObject({
    fact: {
      object_ref: {
        ...(stored as object),
        bucket: 'batch-files',
        key: 'order.pdf',
        media_type: 'application/pdf',
      },
    },
  });
  const target = join(folder, 'copy.pdf');
  expect(await json('objects', 'get', 'batch-files', 'order.pdf', target)).toMatchObject(stored as object);
  expect((await readFile(target)).equals(bytes)).toBe(true);
  await writeFile(source, 'other bytes');
  expect(complaint(await cli('objects', 'put', 'batch-files', 'order.pdf', source))).toContain(
    'stored with other bytes',
  );
  expect(complaint(await cli('objects', 'put', 'batch-files', 'x', join(folder, 'none')))).toContain(
    'cannot read',
  );
}, 300_000);

test('commands of the boundary say what is missing where no zone is configured', async () => {
  const { url } = await emptyDatabase();
  const cli = cliOn(url);
  await cli('migrate');
  const ended = await cli('zones', 'status');
  expect(complaint(ended)).toContain('boundary.zone is not set');
  expect(ended.code).toBe(2);
}, 120_000);

test('zones pair makes certificates and two configurations, and replaces nothing', async () => {
  const folder = await scratch();
  const cli = cliOn('postgres://127.0.0.1:1/never-asked', { cwd: folder });
  const { stdout, code } = await cli('zones', 'pair', 'plant-a', 'enterprise', '--folder', 'zones', '--json');
  expect(code).toBe(0);
  const paired = JSON.parse(stdout);
  expect(paired.zones).toMatchObject([
    {
      zone: 'plant-a',
      config: {
        boundary: { peers: { enterprise: { mode: ['push', 'pull'], url: 'https://localhost:7444' } } },
      },
    },
    { zone: 'enterprise', config: { boundary: { listen: { host: '127.0.0.1', port: 7444 } } } },
  ]);
  for (const { config, config_file } of paired.zones)
    expect(JSON.parse(await readFile(config_file, 'utf8'))).toEqual(config);
  expect(complaint(await cli('zones', 'pair', 'a', 'b', '--folder', 'zones'))).toContain('is there already');
  expect(complaint(await cli('zones', 'pair', 'Plant A', 'b'))).toContain('plant-a');
  // Without the program that makes certificates.
  const without = cliOn('postgres://127.0.0.1:1/never-asked', { cwd: folder, env: { PATH: folder } });
  expect(complaint(await without('zones', 'pair', 'a', 'b', '--folder', 'others'))).toContain(
    'certificates are made by the program "openssl", which is not installed',
  );
}, 120_000);
