import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Tallyman } from '../../src/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { type Cli, cliOn, complaint, openTallyman } from './support.ts';

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
