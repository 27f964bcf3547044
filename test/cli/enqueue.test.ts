import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Tallyman } from '../../src/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { type Cli, cliOn, complaint, openTallyman, scratch } from './support.ts';

let fresh: FreshDatabase;
let tallyman: Tallyman;
let cli: Cli;

beforeAll(async () => {
  fresh = await freshDatabase();
  tallyman = await openTallyman(fresh.url);
  cli = cliOn(fresh.url);
  await tallyman.database.query(
    `select tallyman.register_kind('open', is_public => true), tallyman.register_kind('inner')`,
  );
});

afterAll(async () => {
  await tallyman.close();
  await fresh.drop();
});

test('jobs enqueue: public kinds as they are, internal ones with --internal, others not at all', async () => {
  const made = await cli('jobs', 'enqueue', 'open', '{"n": 1}', '--tenant', 'acme', '--lane', 'l', '--json');
  expect({ code: made.code, stderr: made.stderr }).toEqual({ code: 0, stderr: '' });
  const { id } = JSON.parse(made.stdout);
  expect(await tallyman.jobs.get(id)).toMatchObject({
    kind: 'open',
    payload: { n: 1 },
    tenantId: 'acme',
    lane: 'l',
  });
  const refused = await cli('jobs', 'enqueue', 'inner');
  expect(refused.code).toBe(1);
  expect(complaint(refused)).toMatch(/kind "inner" is internal.*--internal/s);
  expect((await tallyman.jobs.list({ kind: 'inner' })).items).toEqual([]);
  expect((await cli('jobs', 'enqueue', 'inner', '--internal')).code).toBe(0);
  expect((await tallyman.jobs.list({ kind: 'inner' })).items).toHaveLength(1);
  expect(complaint(await cli('jobs', 'enqueue', 'sihp'))).toMatch(/unknown kind "sihp"/);
  expect((await cli('jobs', 'enqueue', 'open', '{oops')).code).toBe(2);
});

test('schedules put: the same', async () => {
  const put = (kind: string, ...more: string[]) =>
    cli('schedules', 'put', kind, '--cron', '0 3 * * *', '--kind', kind, ...more);
  const made = await put('open', '--payload', '{"n": 2}', '--timezone', 'Europe/Berlin', '--json');
  expect({ code: made.code, stderr: made.stderr }).toEqual({ code: 0, stderr: '' });
  expect(JSON.parse(made.stdout)).toMatchObject({
    name: 'open',
    payload: { n: 2 },
    timezone: 'Europe/Berlin',
  });
  const refused = await put('inner');
  expect(refused.code).toBe(1);
  expect(complaint(refused)).toMatch(/--internal/);
  expect((await tallyman.schedules.list()).map(({ name }) => name)).toEqual(['open']);
  expect((await put('inner', '--internal')).code).toBe(0);
  expect((await tallyman.schedules.list()).map(({ name }) => name)).toEqual(['inner', 'open']);
});

test('jobs enqueue: every option of a job', async () => {
  const args = ['jobs', 'enqueue', 'open', '{"big": 12345678901234567890}', '--json'];
  const made = await cli(
    ...args,
    ...['--queue', 'slow', '--priority', '0', '--lane', 'l', '--max-attempts', '9', '--tenant', 'acme'],
    ...['--dedupe-key', 'k', '--correlation', 'c', '--delay', '2d'],
  );
  expect({ code: made.code, stderr: made.stderr }).toEqual({ code: 0, stderr: '' });
  const { id, existing } = JSON.parse(made.stdout);
  expect(existing).toBe(false);
  const job = await tallyman.jobs.get(id);
  expect(job).toMatchObject({ queue: 'slow', priority: 0, lane: 'l', maxAttempts: 9, tenantId: 'acme' });
  expect(job).toMatchObject({ dedupeKey: 'k', correlationId: 'c' });
  expect((job?.scheduledAt.getTime() ?? 0) - (job?.createdAt.getTime() ?? 0)).toBe(2 * 86_400_000);
  const { rows } = await tallyman.database.query<{ text: string }>(
    'select payload::text as text from tallyman.jobs where id = $1',
    [id],
  );
  expect(rows[0]?.text).toContain('12345678901234567890');

  const again = await cli(...args, '--tenant', 'acme', '--dedupe-key', 'k');
  expect(JSON.parse(again.stdout)).toEqual({ id, existing: true });
  const told = await cli('jobs', 'enqueue', 'open', '--tenant', 'acme', '--dedupe-key', 'k');
  expect(told.stdout).toContain(`job ${id} has the dedupe key "k" already`);

  const at = await cli('jobs', 'enqueue', 'open', '--at', '2999-03-01T10:30:00+01:00', '--json');
  expect((await tallyman.jobs.get(JSON.parse(at.stdout).id))?.scheduledAt).toEqual(
    new Date('2999-03-01T09:30:00Z'),
  );
});

test('jobs enqueue: the payload from a file and from standard input', async () => {
  const file = join(await scratch(), 'payload.json');
  await writeFile(file, '{"from": "a file"}\n');
  const payloadOf = async (made: { stdout: string }) =>
    (await tallyman.jobs.get(JSON.parse(made.stdout).id))?.payload;
  expect(await payloadOf(await cli('jobs', 'enqueue', 'open', `@${file}`, '--json'))).toEqual({
    from: 'a file',
  });
  const typed = cliOn(fresh.url, { input: '["from", "stdin"]' });
  expect(await payloadOf(await typed('jobs', 'enqueue', 'open', '-', '--json'))).toEqual(['from', 'stdin']);

  const before = (await tallyman.jobs.counts()).QUEUED;
  for (const [payload, says] of [
    ['@no-such-file.json', /Cannot read no-such-file\.json/],
    ['@', /Cannot read a file: name it/],
    ['-', /Expected JSON on standard input/],
    ['{oops', /Expected JSON, such as/],
  ] as const) {
    const refused = await cli('jobs', 'enqueue', 'open', payload);
    expect(complaint(refused)).toMatch(says);
    expect(refused.code).toBe(2);
  }
  expect((await tallyman.jobs.counts()).QUEUED).toBe(before);
});

test.each([
  { args: ['--delay', 'soon'], says: /such as 30s, 5m/ },
  { args: ['--at', 'tomorrow'], says: /a time with a zone/ },
  { args: ['--delay', '1s', '--at', '2999-01-01T00:00:00Z'], says: /--delay or --at, not both/ },
  { args: ['--priority', '4'], says: /from 0 to 3/ },
  { args: ['--max-attempts', '0'], says: /from 1 to 1000/ },
  { args: ['--queue', 'a', '--queue', 'b'], says: /--queue <name>' is given twice/ },
])('jobs enqueue $args is refused', async ({ args, says }) => {
  const refused = await cli('jobs', 'enqueue', 'open', ...args);
  expect(complaint(refused)).toMatch(says);
  expect(refused.code).toBe(2);
});

test('schedules put: every option, for a tenant, which can pause, resume and remove it', async () => {
  const file = join(await scratch(), 'payload.json');
  await writeFile(file, '{"shift": "any"}');
  const made = await cli(
    ...['schedules', 'put', 'shift', '--cron', '0 6 * * *', '--kind', 'open', '--payload', `@${file}`],
    ...[
      '--queue',
      'slow',
      '--priority',
      '3',
      '--lane',
      'l',
      '--max-attempts',
      '2',
      '--tenant',
      'acme',
      '--json',
    ],
  );
  expect({ code: made.code, stderr: made.stderr }).toEqual({ code: 0, stderr: '' });
  expect(JSON.parse(made.stdout)).toMatchObject({
    tenant_id: 'acme',
    payload: { shift: 'any' },
    ...{ queue: 'slow', priority: 3, lane: 'l', max_attempts: 2 },
  });
  expect((await cli('schedules', 'pause', 'shift')).code).toBe(3);
  for (const verb of ['pause', 'resume', 'remove'])
    expect((await cli('schedules', verb, 'shift', '--tenant', 'acme')).code).toBe(0);
  expect((await tallyman.schedules.list()).filter(({ tenantId }) => tenantId === 'acme')).toEqual([]);
});
