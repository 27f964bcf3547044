import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Tallyman } from '../../src/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { type Cli, cliOn, complaint, openTallyman, ship, work } from './support.ts';

let fresh: FreshDatabase;
let tallyman: Tallyman;
let cli: Cli;
let ids: { done: string; failed: string; later: string };

beforeAll(async () => {
  fresh = await freshDatabase();
  tallyman = await openTallyman(fresh.url);
  cli = cliOn(fresh.url);
  const done = await tallyman.enqueue(ship, { parcel: 'P-1' }, { correlationId: 'order-9' });
  const failed = await tallyman.enqueue(ship, { parcel: 'P-2', fail: 'for good' });
  const later = await tallyman.enqueue(
    ship,
    { parcel: 'P-3' },
    { delayMs: 3_600_000, lane: 'dock-\u001b[31m7' },
  );
  ids = { done: done.id, failed: failed.id, later: later.id };
  await work(tallyman, async () => (await tallyman.jobs.get(failed.id))?.status === 'FAILED');
});

afterAll(async () => {
  await tallyman.close();
  await fresh.drop();
});

test('list shows every job, newest first, with what a person wants to know next', async () => {
  const { code, stdout, stderr } = await cli('jobs', 'list');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const lines = stdout.trim().split('\n');
  expect(lines[0]).toMatch(/^ *ID +STATUS +KIND +QUEUE +LANE +TRIES +CREATED +NOTE$/);
  expect(lines.slice(1).map((line) => line.trim().split(/ +/)[0])).toEqual([ids.later, ids.failed, ids.done]);
  expect(lines[1]).toMatch(/QUEUED .* 0\/1 .* due in \d+ min$|QUEUED .* due in 1 h$/);
  expect(lines[2]).toMatch(/FAILED .*: the parcel has no address$/);
});

test('a terminal does not obey what is written in a name', async () => {
  const { stdout } = await cli('jobs', 'list');
  expect(stdout).toContain('dock-\\u001b[31m7');
  expect(stdout).not.toContain('\u001b');
});

test('list fits the terminal', async () => {
  const narrow = cliOn(fresh.url, { env: { COLUMNS: '60' } });
  const { stdout } = await narrow('jobs', 'list');
  for (const line of stdout.trimEnd().split('\n')) expect(line.length).toBeLessThanOrEqual(60);
  expect(stdout).toContain('FAILED');
  expect(stdout).toContain('…');
});

test('list --json is one document with stable names; filters and pages work', async () => {
  const failed = JSON.parse((await cli('jobs', 'list', '--status', 'failed', '--json')).stdout);
  expect(failed.next_cursor).toBeNull();
  expect(failed.items).toHaveLength(1);
  expect(failed.items[0]).toMatchObject({
    id: ids.failed,
    status: 'FAILED',
    queue: 'shipping',
    kind: 'ship',
    priority: 2,
    tenant_id: 'default',
    lane: null,
    payload: { parcel: 'P-2', fail: 'for good' },
    attempts: 1,
    max_attempts: 1,
    last_error: { code: 'NO_ADDRESS' },
  });
  const first = JSON.parse((await cli('jobs', 'list', '-n', '1', '--json')).stdout);
  expect(first).toMatchObject({ items: [{ id: ids.later }], next_cursor: ids.later });
  const rest = JSON.parse((await cli('jobs', 'list', '--cursor', first.next_cursor, '--json')).stdout);
  expect(rest.items.map((job: { id: string }) => job.id)).toEqual([ids.failed, ids.done]);
  const ofOrder = JSON.parse((await cli('jobs', 'list', '--correlation', 'order-9', '--json')).stdout);
  expect(ofOrder.items.map((job: { id: string }) => job.id)).toEqual([ids.done]);
  expect((await cli('jobs', 'list', '--queue', 'nobody')).stdout).toBe('No jobs.\n');
});

test('more than one page of the library is collected', async () => {
  await tallyman.enqueueMany(
    ship,
    Array.from({ length: 250 }, (_, i) => ({
      payload: { parcel: `B-${i}` },
      tenantId: 'bulk',
      delayMs: 3_600_000,
    })),
  );
  const { items, next_cursor: nextCursor } = JSON.parse(
    (await cli('jobs', 'list', '--tenant', 'bulk', '-n', '230', '--json')).stdout,
  );
  expect(new Set(items.map((job: { id: string }) => job.id)).size).toBe(230);
  expect(nextCursor).toBe(items.at(-1).id);
});

test('show tells everything about one job', async () => {
  const { stdout, code } = await cli('jobs', 'show', ids.failed);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^job +\d+\nstatus +FAILED\nkind +ship\n/);
  expect(stdout).toMatch(/created +\d{4}-\d\d-\d\d .* UTC \((now|\d+ (s|min) ago)\)/);
  expect(stdout).toContain('"parcel": "P-2"');
  expect(stdout).toContain('NO_ADDRESS: the parcel has no address');
  expect(JSON.parse((await cli('jobs', 'show', ids.done, '--json')).stdout)).toMatchObject({
    id: ids.done,
    status: 'SUCCEEDED',
    correlation_id: 'order-9',
  });
});

test('retry and cancel change what can be changed, and say why not for the rest', async () => {
  const cancelled = await cli('jobs', 'cancel', ids.later, ids.done, '--reason', 'wrong dock');
  expect(cancelled).toMatchObject({ code: 1, stdout: `job ${ids.later} is cancelled\n` });
  expect(cancelled.stderr).toBe(`error: job ${ids.done} is SUCCEEDED and cannot be cancelled\n`);
  expect(await tallyman.jobs.get(ids.later)).toMatchObject({
    status: 'CANCELLED',
    lastError: { message: 'wrong dock' },
  });
  const retried = await cli('jobs', 'retry', ids.failed, '999999999', '--json');
  expect(retried.code).toBe(3);
  expect(JSON.parse(retried.stdout)).toEqual({
    retried: [ids.failed],
    failed: [{ id: '999999999', message: 'there is no job 999999999' }],
  });
  expect(await tallyman.jobs.get(ids.failed)).toMatchObject({ status: 'QUEUED', attempts: 0 });
});

test.each([
  { args: ['jobs', 'show', '999999999'], code: 3, says: 'there is no job 999999999' },
  { args: ['jobs', 'show', 'abc'], code: 2, says: '"abc" is not an id' },
  { args: ['jobs', 'show', '-5'], code: 2, says: '"-5" is not an id' },
  { args: ['jobs', 'show', '99999999999999999999'], code: 2, says: 'is not an id' },
  { args: ['jobs', 'show'], code: 2, says: "missing required argument 'id'" },
  { args: ['jobs', 'retry', 'x'], code: 2, says: '"x" is not an id' },
  { args: ['jobs', 'list', '--status', 'LOST'], code: 2, says: 'Expected one of QUEUED, RUNNING' },
  { args: ['jobs', 'list', '--limit', '0'], code: 2, says: 'Expected a whole number from 1' },
  { args: ['jobs', 'list', '--cursor', 'x'], code: 2, says: '"x" is not an id' },
  { args: ['jobs', 'list', 'surplus'], code: 2, says: 'too many arguments' },
])('tallyman $args: exit code $code', async ({ args, code, says }) => {
  const ended = await cli(...args);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(code);
});
