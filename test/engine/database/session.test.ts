import { describe, expect, onTestFinished, test } from 'vitest';
import {
  Database,
  type DatabaseOptions,
  isOutage,
  type Queryable,
} from '../../../src/engine/database/database.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { engine, until } from '../../support/engine.ts';
import { eventually } from '../../support/eventually.ts';
import { emptyDatabase } from '../../support/postgres.ts';

/** A database whose owner has other ideas than the engine. */
async function opened(options: Partial<DatabaseOptions> = {}): Promise<Database> {
  const { url, drop } = await emptyDatabase();
  const name = new URL(url).pathname.slice(1);
  const admin = await Database.connect({ url, poolSize: 1 });
  for (const setting of ["default_transaction_isolation = 'repeatable read'", "statement_timeout = '7s'"])
    await admin.query(`alter database ${name} set ${setting}`);
  await admin.close();
  const database = await Database.connect({ url, poolSize: 2, ...options });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  return database;
}

/** The server has ended every transaction that was left idle. */
const idleEnded = (database: Database): Promise<void> =>
  until('no transaction is idle', async () => {
    const { rowCount } = await database.query(
      `select from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`,
    );
    return rowCount === 0;
  });

const names = [
  'transaction_isolation',
  'statement_timeout',
  'idle_in_transaction_session_timeout',
  'tcp_keepalives_idle',
];
const text = `select ${names.map((name) => `current_setting('${name}')`).join(` || ', ' || `)} as value`;
const settings = async (on: Queryable) => (await on.query<{ value: string }>(text)).rows[0]?.value;

describe('ENG-18: what the engine relies on is set on every connection', () => {
  test('of the pool, in transactions, beside the pool, and on the hot one', async () => {
    const database = await opened();
    const ours = 'read committed, 1min, 1min, 10';
    expect(await settings(database)).toBe(ours);
    expect(await database.transaction(settings)).toBe(ours);
    const dedicated = await database.dedicated();
    expect(await settings(dedicated)).toBe(ours);
    await dedicated.end();
    const unlimited = await database.dedicated('long', { statementMs: 0 });
    expect(await settings(unlimited)).toBe('read committed, 0, 1min, 10');
    await unlimited.end();
    database.keepHotConnection();
    await eventually(async () => {
      await database.run({ name: 'one', text: 'select 1' }, []);
      expect(database.isHotConnectionFree).toBe(true);
    });
    expect(await database.run({ name: 'settings', text }, [])).toEqual([[ours]]);
  });

  test('of the heartbeat', async () => {
    const bundle = await engine();
    // What it does first on each connection writes down what it finds there.
    await bundle.rows(`
      do $do$ begin
        execute format('alter database %I set default_transaction_isolation = ''repeatable read''', current_database());
      end $do$;
      create table seen (application text, isolation text);
      create or replace function tallyman.present(p_worker text) returns void language sql as $fn$
        insert into seen
        values (current_setting('application_name'), current_setting('default_transaction_isolation'))
      $fn$`);
    await bundle.work({ kinds: [defineKind({ name: 'k', handler: async () => {} })], leaseMs: 9_900 });
    const found = () => bundle.rows(`select isolation from seen where application = 'tallyman heartbeat'`);
    await until('the heartbeat is set up', async () => (await found()).length > 0, 30_000);
    expect(await found()).toEqual([{ isolation: 'read committed' }]);
  });

  test('a transaction may have limits of its own, for itself alone', async () => {
    const database = await opened({ poolSize: 1, queryTimeoutMs: 30_000, idleInTransactionMs: 20_000 });
    const own = await database.transaction(settings, { statementMs: 90_000, idleMs: 0 });
    expect(own).toBe('read committed, 90s, 0, 10');
    expect(await settings(database)).toBe('read committed, 30s, 20s, 10');
  });

  test('a transaction may say more than begin', async () => {
    const database = await opened();
    const opening = `begin; set local statement_timeout = '3s'`;
    expect(await database.transaction(settings, opening)).toBe('read committed, 3s, 1min, 10');
    expect(await database.transaction(settings, 'begin isolation level serializable')).toContain(
      'serializable',
    );
  });

  test('where sessions are shared, each transaction brings it along', async () => {
    const database = await opened({ poolSize: 1 });
    database.prepare = false;
    await database.query(`set default_transaction_isolation = 'serializable'; set statement_timeout = 0;
      set idle_in_transaction_session_timeout = 0`);
    expect(await database.transaction(settings)).toBe('read committed, 1min, 1min, 10');
    expect(await database.transaction(settings, `begin; set local statement_timeout = '3s'`)).toBe(
      'read committed, 3s, 1min, 10',
    );
    expect(await settings(database)).toBe('serializable, 0, 0, 10');
  });
});

describe('ENG-18: limits', () => {
  test('a transaction that is left idle is ended, and the error says so', async () => {
    const database = await opened({ idleInTransactionMs: 1000 });
    const idle = database.transaction(async (tx) => {
      await tx.query('select 1');
      await idleEnded(database);
      await tx.query('select 2');
    });
    const error = await idle.catch((reason) => reason);
    expect(error).toMatchObject({ code: '25P03' });
    expect(isOutage(error)).toBe(false);
    expect(database.isOwnOutage(error)).toBe(false);
    expect(await database.transaction(async () => 'works')).toBe('works');
  });

  test('a handler that wraps the error of its idle transaction does not make it an outage', async () => {
    const database = await opened({ idleInTransactionMs: 1000 });
    const idle = database.transaction(async (tx) => {
      await idleEnded(database);
      await tx.query('select 2').catch((cause) => {
        throw new Error('could not finish', { cause });
      });
    });
    const error = await idle.catch((reason) => reason);
    expect(error).toMatchObject({ message: 'could not finish' });
    expect(database.isOwnOutage(error)).toBe(false);
  });

  test('a statement that takes too long is cancelled; the connection stays', async () => {
    const database = await opened({ queryTimeoutMs: 1000, poolSize: 1 });
    const error = await database.query('select pg_sleep(60)').catch((reason) => reason);
    expect(error).toMatchObject({ code: '57014' });
    expect(database.isOwnOutage(error)).toBe(false);
    const within = database.transaction((tx) => tx.query('select pg_sleep(1.5)'), { statementMs: 30_000 });
    expect((await within).rows).toHaveLength(1);
  });
});
