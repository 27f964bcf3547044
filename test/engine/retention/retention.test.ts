import { afterEach, beforeEach, expect, it } from 'vitest';
import { Retention } from '../../../src/engine/retention/retention.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';

let fresh: FreshDatabase;

beforeEach(async () => {
  fresh = await freshDatabase();
});
afterEach(() => fresh.drop());

const dayMs = 24 * 60 * 60 * 1000;
const day = (offset: number): string =>
  new Date(Date.now() + offset * dayMs).toISOString().slice(0, 10).replaceAll('-', '');
const dateOf = (name: string): string => name.replace(/^history_(\d{4})(\d\d)(\d\d)$/, '$1-$2-$3');

async function partitions(): Promise<string[]> {
  const { rows } = await fresh.database.query<{ name: string }>(
    `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'tallyman.history'::regclass and c.relname <> 'history_default' order by 1`,
  );
  return rows.map(({ name }) => name);
}

async function makePartition(name: string): Promise<void> {
  const from = dateOf(name);
  await fresh.database.query(
    `create table tallyman.${name} partition of tallyman.history
       for values from ('${from} 00:00Z') to ('${new Date(Date.parse(from) + dayMs).toISOString()}')`,
  );
}

const finish = (id: number, at: string) =>
  fresh.database.query(
    `insert into tallyman.history (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at,
                                   kind, tenant_id, payload)
     values ($1, now() + $2::interval, 'FAILED', 1, 1, 5, now(), now(), 'k', 't', '{}')`,
    [id, at],
  );
const finished = async (): Promise<number[]> =>
  (await fresh.database.query('select id::int from tallyman.history order by id')).rows.map(({ id }) => id);

it('ENG-14: partitions are made ahead; making them again makes none', async () => {
  const made = await partitions();
  expect(made).toContain(`history_${day(14)}`);
  const retention = new Retention({ daysAhead: 16 });
  expect((await retention.run(fresh.database)).partitionsMade).toBe(2);
  expect((await retention.run(fresh.database)).partitionsMade).toBe(0);
  expect(await partitions()).toContain(`history_${day(16)}`);
});

it('ENG-14: days that are past their time are dropped whole; younger ones stay', async () => {
  for (const offset of [-2, -8, -9, -40]) await makePartition(`history_${day(offset)}`);
  for (const [id, at] of [
    [1, '-2 days'],
    [2, '-9 days'],
    [3, '-40 days'],
    [4, '0 days'],
  ] as const)
    await finish(id, at);
  const report = await new Retention({ keepMs: 7 * dayMs }).run(fresh.database);
  expect([...report.partitionsDropped].sort()).toEqual(
    [`history_${day(-40)}`, `history_${day(-9)}`, `history_${day(-8)}`].sort(),
  );
  expect(await finished()).toEqual([1, 4]);
});

it('ENG-14: with keep at zero, failures stay for at least a day', async () => {
  for (const offset of [-1, -3]) await makePartition(`history_${day(offset)}`);
  await finish(1, '-1 days');
  await finish(2, '-3 days');
  await finish(3, '0 days');
  const report = await new Retention({ keepMs: 0 }).run(fresh.database);
  expect(report.partitionsDropped).toEqual([`history_${day(-3)}`]);
  expect(await finished()).toEqual([1, 3]);
});

it('ENG-14: what lies in the default partition is deleted when its time is past', async () => {
  await finish(1, '-30 days');
  await finish(2, '-3 days');
  await new Retention({ keepMs: 7 * dayMs }).run(fresh.database);
  expect(await finished()).toEqual([2]);
});

it('a long reader of history is not waited for: the step is postponed, writers go on', async () => {
  await makePartition(`history_${day(-30)}`);
  const retention = new Retention({ daysAhead: 20 });
  await fresh.database.transaction(async (reader) => {
    await reader.query('select count(*) from tallyman.history');
    const report = await retention.run(fresh.database);
    expect(report).toMatchObject({ partitionsDropped: [], postponed: expect.arrayContaining(['purge']) });
    await finish(1, '0 days');
  });
  expect((await retention.run(fresh.database)).partitionsDropped).toEqual([`history_${day(-30)}`]);
});

it('leftovers go in bites: keys past their time and lanes long at rest, never a live one', async () => {
  await fresh.database.query(`
    insert into tallyman.dedupe_keys (tenant_id, kind, key, job_id, expires_at)
    select 't', 'k', 'old' || n, n, now() - interval '1 hour' from generate_series(1, 25) n
    union all select 't', 'k', 'live', 100, null union all select 't', 'k', 'later', 101, now() + interval '1 hour'`);
  await fresh.database.query(`
    select tallyman.register_kind('k');
    select tallyman.enqueue('k', lane => 'busy');
    insert into tallyman.lanes (tenant_id, queue, key, stream, rested_at, blocked_at)
    select 'default', 'default', 'idle' || n, 1, now() - interval '2 days', null from generate_series(1, 25) n
    union all select 'default', 'default', 'blocked', 1, now() - interval '2 days', now()
    union all select 'default', 'default', 'recent', 1, now(), null;
    insert into tallyman.lane_gates (lane, tenant_id)
    select id, tenant_id from tallyman.lanes where key <> 'busy';
    update tallyman.lanes set rested_at = now() - interval '2 days' where key = 'busy'`);
  let transactions = 0;
  const counted = {
    transaction: <T>(work: Parameters<typeof fresh.database.transaction<T>>[0]) => {
      transactions += 1;
      return fresh.database.transaction(work);
    },
  };
  const report = await new Retention({ biteSize: 10 }).purgeLeftovers(counted);
  expect(report).toEqual({ keysPurged: 25, lanesPurged: 25 });
  expect(transactions).toBe(3);
  const { rows: keys } = await fresh.database.query('select key from tallyman.dedupe_keys order by key');
  expect(keys.map(({ key }) => key)).toEqual(['later', 'live']);
  const { rows: lanes } = await fresh.database.query('select key from tallyman.lanes order by key');
  expect(lanes.map(({ key }) => key)).toEqual(['blocked', 'busy', 'recent']);
});

it('killed between its steps, it goes on where it was', async () => {
  await fresh.database.query(`
    insert into tallyman.dedupe_keys (tenant_id, kind, key, job_id, expires_at)
    select 't', 'k', 'old' || n, n, now() - interval '1 hour' from generate_series(1, 30) n`);
  let bites = 0;
  const dying = new Retention({ biteSize: 10 }).purgeLeftovers({
    transaction: (work) =>
      fresh.database.transaction(async (tx) => {
        const result = await work(tx);
        bites += 1;
        if (bites === 2) {
          const { rows } = await tx.query('select pg_backend_pid() as pid');
          await fresh.database.query('select pg_terminate_backend($1, 5000)', [rows[0]?.pid]);
        }
        return result;
      }),
  });
  await expect(dying).rejects.toThrow();
  const { rows } = await fresh.database.query('select count(*)::int as left from tallyman.dedupe_keys');
  expect(rows[0]?.left).toBe(20);
  expect((await new Retention({ biteSize: 10 }).run(fresh.database)).keysPurged).toBe(20);
});
