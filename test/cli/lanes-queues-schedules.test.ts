import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Tallyman } from '../../src/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';
import { type Cli, cliOn, complaint, openTallyman, ship, weigh, work } from './support.ts';

let fresh: FreshDatabase;
let tallyman: Tallyman;
let cli: Cli;

beforeAll(async () => {
  fresh = await freshDatabase();
  tallyman = await openTallyman(fresh.url);
  cli = cliOn(fresh.url);
});

afterAll(async () => {
  await tallyman.close();
  await fresh.drop();
});

test('a blocked lane is shown with what blocked it, and goes on when a person says so', async () => {
  const first = await tallyman.enqueue(weigh, { parcel: 'P-1', fail: 'the scale is stuck' });
  const second = await tallyman.enqueue(weigh, { parcel: 'P-2' });
  await work(tallyman, async () => (await tallyman.lanes.get('scale-1'))?.state === 'blocked');

  const list = await cli('lanes', 'list', '--state', 'blocked');
  expect(list.stdout).toMatch(
    /^LANE +STATE +PENDING +QUEUE +TENANT +POLICY +NOTE\nscale-1 +blocked +1 +scales /,
  );
  expect(list.stdout).toContain(`by job ${first.id}`);
  const page = await cli('lanes', 'show', 'scale-1');
  expect(page.stdout).toMatch(/state +blocked/);
  expect(page.stdout).toContain('the scale is stuck');
  expect(page.stdout).toMatch(new RegExp(`newest jobs\n.*\n *${second.id} +QUEUED`));
  const { items } = JSON.parse((await cli('lanes', 'list', '--json')).stdout);
  expect(items).toMatchObject([{ key: 'scale-1', state: 'blocked', blocked_by: first.id, pending: 1 }]);
  const one = JSON.parse((await cli('lanes', 'show', 'scale-1', '--json')).stdout);
  expect(one).toMatchObject({
    key: 'scale-1',
    blocked_by_job: { id: first.id },
    newest_jobs: [{ id: second.id }, {}],
  });

  expect(await cli('lanes', 'unblock', 'scale-1')).toMatchObject({
    code: 0,
    stdout: 'lane "scale-1" goes on\n',
  });
  await work(tallyman, async () => (await tallyman.jobs.get(second.id))?.status === 'SUCCEEDED');
  const again = await cli('lanes', 'unblock', 'scale-1');
  expect(complaint(again)).toContain('lane "scale-1" is not blocked');
  expect(again.code).toBe(1);
  expect((await cli('lanes', 'show', 'scale-9')).code).toBe(3);
  expect((await cli('lanes', 'list', '--state', 'happy')).code).toBe(2);
});

test('queues are paused, resumed and limited', async () => {
  const { id } = await tallyman.enqueue(ship, { parcel: 'P-1' });
  expect(await cli('queues', 'pause', 'shipping')).toMatchObject({
    code: 0,
    stdout: 'queue "shipping" is paused\n',
  });
  expect((await cli('queues', 'list')).stdout).toMatch(/shipping +paused +1 +0 +0/);
  const probe = await tallyman.enqueue(weigh, { parcel: 'P-2' });
  await work(tallyman, async () => (await tallyman.jobs.get(probe.id))?.status === 'SUCCEEDED');
  expect((await tallyman.jobs.get(id))?.status).toBe('QUEUED');
  expect((await cli('queues', 'resume', 'shipping')).stdout).toBe('queue "shipping" goes on\n');
  await work(tallyman, async () => (await tallyman.jobs.get(id))?.status === 'SUCCEEDED');

  const limited = await cli('queues', 'limit', 'shipping', '--max-running', '4', '--rate', '2.5');
  expect(limited.stdout).toContain('4 at once, 2.5/s');
  expect((await cli('queues', 'limit', 'shipping', '--rate', 'none')).code).toBe(0);
  const { items } = JSON.parse((await cli('queues', 'list', '--json')).stdout);
  expect(items.find((queue: { name: string }) => queue.name === 'shipping')).toMatchObject({
    paused_at: null,
    max_running: 4,
    rate_per_second: null,
    ready: 0,
  });
  expect((await cli('queues', 'resume', 'shiping')).code).toBe(3);
  expect(await cli('queues', 'pause', 'not-yet')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('queue "not-yet" is paused; it is new'),
  });
  expect((await tallyman.queues.list()).find(({ name }) => name === 'not-yet')).toMatchObject({
    paused: true,
  });
});

test.each([
  { args: ['limit', 'q'], says: 'name a limit' },
  { args: ['limit', 'q', '--rate', '-1'], says: 'Expected a number above zero' },
  { args: ['limit', 'q', '--max-running', '1.5'], says: 'Expected a whole number above zero' },
  { args: ['limit', 'x'.repeat(129), '--rate', '1'], says: 'at most 128 bytes' },
])('queues $args is wrong usage', async ({ args, says }) => {
  const ended = await cli('queues', ...args);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(2);
});

test('schedules are listed, paused, resumed and removed', async () => {
  expect((await cli('schedules', 'list')).stdout).toBe('No schedules.\n');
  await tallyman.schedules.upsert({
    name: 'nightly',
    cron: '0 3 * * *',
    kind: ship,
    payload: { parcel: 'all' },
  });
  expect((await cli('schedules', 'list')).stdout).toMatch(
    /nightly +on +0 3 \* \* \* +UTC +ship +in \d+ (h|min|s)/,
  );
  expect(await cli('schedules', 'pause', 'nightly')).toMatchObject({
    code: 0,
    stdout: 'schedule "nightly" is paused\n',
  });
  expect((await cli('schedules', 'pause', 'nightly')).code).toBe(1);
  expect(JSON.parse((await cli('schedules', 'list', '--json')).stdout).items).toMatchObject([
    { name: 'nightly', enabled: false, kind: 'ship' },
  ]);
  expect((await cli('schedules', 'resume', 'nightly')).stdout).toBe('schedule "nightly" goes on\n');
  expect((await cli('schedules', 'remove', 'nightly')).stdout).toBe('schedule "nightly" is removed\n');
  const gone = await cli('schedules', 'remove', 'nightly');
  expect(complaint(gone)).toContain('there is no schedule "nightly"');
  expect(gone.code).toBe(3);
});
