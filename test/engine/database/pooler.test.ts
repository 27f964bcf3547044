import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { Database, type Queryable } from '../../../src/engine/database/database.ts';
import { examine } from '../../../src/engine/database/doctor.ts';
import { detectPooler } from '../../../src/engine/database/pooler.ts';
import { exclusively } from '../../../src/engine/locks/exclusive.ts';
import { Retention } from '../../../src/engine/retention/retention.ts';
import { Housekeeper } from '../../../src/engine/schedules/housekeeper.ts';
import { Schedules } from '../../../src/engine/schedules/schedules.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';
import { privatePgbouncer } from './support/pgbouncer.ts';

let fresh: FreshDatabase;

beforeEach(async () => {
  fresh = await freshDatabase();
});
afterEach(() => fresh.drop());

async function behind(mode: 'session' | 'transaction', poolSize?: number): Promise<Database> {
  const pgbouncer = await privatePgbouncer(fresh.url, mode, poolSize);
  onTestFinished(() => pgbouncer[Symbol.asyncDispose]());
  await pgbouncer.start();
  const database = await Database.connect({ url: pgbouncer.url, poolSize: 3 });
  onTestFinished(() => database.close());
  return database;
}

async function client(database: Database): Promise<pg.Client> {
  const client = await database.dedicated();
  onTestFinished(() => client.end());
  return client;
}

const tryLock = async (on: pg.Client): Promise<boolean> =>
  (await on.query('select pg_try_advisory_lock(7) as locked')).rows[0]?.locked;

describe('detectPooler', () => {
  it('finds none where there is none', async () => {
    expect(await detectPooler(fresh.database)).toBe('none');
  });

  it('finds session pooling', async () => {
    expect(await detectPooler(await behind('session'))).toBe('session');
  });

  it('finds transaction pooling, also while others use the pool', async () => {
    const database = await behind('transaction');
    expect(await detectPooler(database)).toBe('transaction');
    const found = await Promise.all([detectPooler(database), detectPooler(database)]);
    expect(found).toEqual(['transaction', 'transaction']);
  });

  it('finds transaction pooling where there is a single session for all', async () => {
    expect(await detectPooler(await behind('transaction', 1))).toBe('transaction');
  });

  it('leaves no transaction and no connection behind', async () => {
    await detectPooler(fresh.database);
    const left = async () =>
      (
        await fresh.database.query(
          `select 1 from pg_stat_activity where application_name = 'tallyman pooler probe'`,
        )
      ).rows;
    while ((await left()).length > 0);
  });
});

describe('behind a transaction pooler, which is why it is looked for', () => {
  it('a session advisory lock keeps nobody out', async () => {
    const database = await behind('transaction', 1);
    const [first, second] = [await client(database), await client(database)];
    expect(await tryLock(first)).toBe(true);
    expect(await tryLock(second)).toBe(true);
  });

  it('LISTEN hears nothing', async () => {
    const database = await behind('transaction', 1);
    const [listener, direct] = [await client(database), await client(fresh.database)];
    const heard: string[] = [];
    listener.on('notification', ({ payload }) => heard.push(payload ?? ''));
    direct.on('notification', ({ payload }) => heard.push(`direct ${payload}`));
    await listener.query('listen hints');
    await direct.query('listen hints');
    await fresh.database.query(`notify hints, 'work'`);
    while (!heard.includes('direct work')) await direct.query('select 1');
    expect(heard).toEqual(['direct work']);
  });

  it('an exclusive section is refused and takes no lock; behind a session pooler it works', async () => {
    const refused = exclusively(await behind('transaction'), 7, async () => 'in');
    await expect(refused).rejects.toMatchObject({ code: 'TRANSACTION_POOLER' });
    expect(await tryLock(await client(fresh.database))).toBe(true);
    const session = await behind('session');
    expect(await exclusively(session, 8, async () => exclusively(session, 8, async () => 'in'))).toEqual({
      ran: true,
      value: { ran: false },
    });
    expect(await exclusively(session, 8, async () => 'in')).toEqual({ ran: true, value: 'in' });
  });

  it('ENG-18: settings leak into no session that others use; behind a session pooler they hold', async () => {
    const show = `select current_setting('transaction_isolation') || ', ' || current_setting('statement_timeout') as value`;
    const shown = async (on: Queryable) => (await on.query(show)).rows[0]?.value;
    await fresh.database.query(
      `alter database ${new URL(fresh.url).pathname.slice(1)} set default_transaction_isolation = 'serializable'`,
    );
    const shared = await behind('transaction', 2);
    expect(shared.prepare).toBe(false);
    await client(shared);
    expect(await shared.transaction(shown)).toBe('read committed, 1min');
    expect(await Promise.all([shown(shared), shown(shared), shown(shared)])).toEqual(
      Array(3).fill('serializable, 0'),
    );
    const session = await behind('session');
    expect(await Promise.all([shown(session), shown(session)])).toEqual(
      Array(2).fill('read committed, 1min'),
    );
    expect(await shown(await client(session))).toBe('read committed, 1min');
  });

  it('every housekeeper keeps house, and still each due time runs once', async () => {
    const database = await behind('transaction');
    const schedules = new Schedules(database);
    await fresh.database.query(`select tallyman.register_kind('tick')`);
    await schedules.upsert({ name: 's', cron: '* * * * * *', kind: 'tick', payload: {} });
    const keepers = [1, 2].map(
      () => new Housekeeper(database, { schedules, retention: new Retention(), tickMs: 20 }),
    );
    for (const keeper of keepers) keeper.start();
    const keys = async (): Promise<string[]> =>
      (await fresh.database.query('select dedupe_key from tallyman.jobs')).rows.map((row) => row.dedupe_key);
    while ((await keys()).length < 3 || keepers.some(({ active }) => !active))
      await database.query('select 1');
    await Promise.all(keepers.map((keeper) => keeper.stop()));
    const all = await keys();
    expect(new Set(all).size).toBe(all.length);
  });

  it('the doctor says so', async () => {
    const findings = await examine(await behind('transaction'));
    expect(findings.find(({ check }) => check === 'pooler')).toMatchObject({
      level: 'warn',
      advice: expect.any(String),
    });
  });
});
