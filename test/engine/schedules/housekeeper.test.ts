import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { afterEach, beforeEach, expect, inject, it, onTestFinished } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { Retention } from '../../../src/engine/retention/retention.ts';
import { Housekeeper, type HousekeeperOptions } from '../../../src/engine/schedules/housekeeper.ts';
import { Schedules } from '../../../src/engine/schedules/schedules.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';
import { RecordedLogs } from '../../support/services/logs.ts';

let fresh: FreshDatabase;

beforeEach(async () => {
  fresh = await freshDatabase();
  await fresh.database.query(`select tallyman.register_kind('tick')`);
});
afterEach(() => fresh.drop());

const logs = new RecordedLogs();

async function housekeeper(options: Partial<HousekeeperOptions> = {}): Promise<Housekeeper> {
  const database = await Database.connect({ url: fresh.url, poolSize: 3, logger: logs });
  const keeper = new Housekeeper(database, {
    schedules: new Schedules(database),
    retention: new Retention(),
    tickMs: 20,
    standbyMs: 20,
    ...options,
  });
  onTestFinished(async () => {
    await keeper.stop();
    await database.close();
  });
  keeper.start();
  return keeper;
}

async function until(reached: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await reached())) await sleep(10);
}

const everySecond = { cron: '* * * * * *', kind: 'tick', payload: {} };
const jobs = async (): Promise<string[]> =>
  (
    await fresh.database.query<{ key: string }>('select dedupe_key as key from tallyman.jobs order by id')
  ).rows.map(({ key }) => key);
const holders = async (): Promise<number[]> =>
  (
    await fresh.database.query<{ pid: number }>(
      `select pid from pg_locks where locktype = 'advisory' and granted
          and database = (select oid from pg_database where datname = current_database())`,
    )
  ).rows.map(({ pid }) => pid);

it('ENG-13, ENG-14: runs retention at the start and schedules as they fall due', async () => {
  await fresh.database.query(
    `insert into tallyman.dedupe_keys values ('t', 'k', 'old', 1, null, now() - interval '1 day')`,
  );
  await new Schedules(fresh.database).upsert({ ...everySecond, name: 's' });
  const keeper = await housekeeper();
  await until(async () => (await jobs()).length >= 2);
  expect(keeper.active).toBe(true);
  const { rows } = await fresh.database.query(`select 1 from tallyman.dedupe_keys where key = 'old'`);
  expect(rows).toEqual([]);
  await keeper.stop();
  expect(await holders()).toEqual([]);
  expect(keeper.active).toBe(false);
});

it('one keeps house, the others stand by; when its session is killed, it or another goes on, and no time runs twice', async () => {
  await new Schedules(fresh.database).upsert({ ...everySecond, name: 's' });
  const keepers = await Promise.all([housekeeper(), housekeeper(), housekeeper()]);
  for (const round of [1, 2, 3]) {
    await until(async () => (await jobs()).length >= round);
    expect(keepers.filter(({ active }) => active).length).toBeLessThanOrEqual(1);
    for (const pid of await holders())
      await fresh.database.query('select pg_terminate_backend($1, 5000)', [pid]);
  }
  await until(async () => (await jobs()).length >= 5);
  await until(() => keepers.filter(({ active }) => active).length === 1);
  const keys = await jobs();
  expect(new Set(keys).size).toBe(keys.length);
  expect(logs.at('warn').map(({ message }) => message)).toContain(
    'schedules and retention are interrupted; trying again',
  );
});

it('stopping hands the post to another at once', async () => {
  const first = await housekeeper();
  await until(() => first.active);
  const second = await housekeeper();
  await first.stop();
  await until(() => second.active);
  first.start();
  expect(() => first.start()).toThrow('started');
});

it('trouble with retention is logged and keeps no schedule from running', async () => {
  await new Schedules(fresh.database).upsert({ ...everySecond, name: 's' });
  const retention = new Retention();
  retention.run = () => Promise.reject(new Error('no space'));
  await housekeeper({ retention });
  await until(async () => (await jobs()).length >= 1);
  expect(logs.at('error')).toContainEqual(expect.objectContaining({ fields: { reason: 'no space' } }));
});

it('a database that refuses everybody for a while stops it only for that while', async () => {
  const name = new URL(fresh.url).pathname.slice(1);
  await new Schedules(fresh.database).upsert({ ...everySecond, name: 's' });
  await housekeeper();
  await until(async () => (await jobs()).length >= 1);
  const admin = new pg.Client({ connectionString: inject('postgresUrl') });
  await admin.connect();
  await admin.query(`alter database ${name} with allow_connections false`);
  await admin.query('select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1', [
    name,
  ]);
  const refused = () => logs.at('debug').filter(({ message }) => message.includes('interrupted')).length;
  const before = refused();
  await until(() => refused() >= before + 2);
  await admin.query(`alter database ${name} with allow_connections true`);
  await admin.end();
  const seen = (await jobs()).length;
  await until(async () => (await jobs()).length > seen);
});
