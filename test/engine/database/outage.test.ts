import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Database, isOutage } from '../../../src/engine/database/database.ts';
import { ChaosProxy } from '../../support/chaos-proxy.ts';
import { until } from '../../support/engine.ts';
import { emptyDatabase, privateServer } from '../../support/postgres.ts';

const one = { name: 'one', text: 'select 1' };
const nap = { name: 'nap', text: 'select pg_sleep(60)' };

async function opened(): Promise<Database> {
  const { url, drop } = await emptyDatabase();
  const database = await Database.connect({ url, poolSize: 3 });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  return database;
}

const errorOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (error) => error,
  );

/** Of a port where nobody listens, as `fetch` or a pool of the handler's own would throw it. */
async function refused(): Promise<unknown> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  const socket = connect(typeof address === 'object' ? (address?.port ?? 0) : 0, '127.0.0.1');
  return (await once(socket, 'error').catch((error) => [error]))[0];
}

const terminateNaps = `select pg_terminate_backend(pid) from pg_stat_activity
  where datname = current_database() and query like '%pg_sleep%' and pid <> pg_backend_pid()`;

describe('ENG-18: outages of our own database', () => {
  test.each(['query', 'run', 'transaction'] as const)('a terminated backend, in %s', async (method) => {
    const database = await opened();
    const sleeping = {
      query: () => database.query(nap.text),
      run: () => database.run(nap, []),
      transaction: () => database.transaction((tx) => tx.query(nap.text)),
    }[method]();
    const failed = errorOf(sleeping);
    await until('it was terminated', async () => (await database.query(terminateNaps)).rows.length > 0);
    const error = await failed;
    expect(error).toMatchObject({ code: '57P01' });
    expect(isOutage(error)).toBe(true);
    expect(database.isOwnOutage(new Error('handler failed', { cause: error }))).toBe(true);
  });

  test('a backend terminated between two statements of a transaction: the server’s reason is told', async () => {
    const database = await opened();
    const error = await errorOf(
      database.transaction(async (tx) => {
        const lost = once(tx, 'error');
        const { rows } = await tx.query('select pg_backend_pid() as pid');
        await database.query('select pg_terminate_backend($1)', [rows[0].pid]);
        await lost.catch(() => {});
        await tx.query('select 1');
      }),
    );
    expect(error).toMatchObject({ code: '57P01' });
    expect(database.isOwnOutage(error)).toBe(true);
  });

  test('a server that stops, is away, and comes back', async () => {
    const server = await privateServer();
    const database = await Database.connect({ url: server.url, poolSize: 2 });
    onTestFinished(() => database.close());
    const underway = errorOf(database.run(nap, []));
    await until(
      'it runs',
      async () =>
        (
          await database.query(`select 1 from pg_stat_activity where query = $1 and state = 'active'`, [
            nap.text,
          ])
        ).rows.length > 0,
    );
    await server.stop();
    const away = await Promise.all([
      underway,
      errorOf(database.run(one, [])),
      errorOf(database.query('select 1')),
      errorOf(database.transaction(async () => {})),
      errorOf(database.dedicated()),
      errorOf(Database.connect({ url: server.url })),
    ]);
    expect(away.map((error) => isOutage(error))).toEqual(away.map(() => true));
    expect(away.map((error) => database.isOwnOutage(error))).toEqual(away.map(() => true));
    await server.restart();
    await until('it is back', async () => (await errorOf(database.run(one, []))) === undefined);
  });

  test('a server that is full', async () => {
    const { url, drop } = await emptyDatabase();
    onTestFinished(drop);
    const admin = await Database.connect({ url, poolSize: 1 });
    const name = new URL(url).pathname.slice(1);
    await admin.query(`create role ${name} login password 'x' connection limit 1`);
    const narrow = new URL(url);
    narrow.username = name;
    narrow.password = 'x';
    const database = await Database.connect({ url: narrow.toString(), poolSize: 2 });
    onTestFinished(async () => {
      await database.close();
      await admin.query(`drop role ${name}`);
      await admin.close();
    });
    const error = await errorOf(database.dedicated());
    expect(error).toMatchObject({ code: '53300' });
    expect(database.isOwnOutage(error)).toBe(true);
  });

  test('a connection that went silent', async () => {
    const { url, drop } = await emptyDatabase();
    onTestFinished(drop);
    const proxy = await ChaosProxy.before(url);
    const database = await Database.connect({ url: proxy.url, statementTimeoutMs: 300 });
    onTestFinished(() => database.close());
    proxy.freeze();
    const error = await errorOf(database.run(one, []));
    expect(isOutage(error)).toBe(true);
    expect(database.isOwnOutage(error)).toBe(true);
  });

  test('a server that takes no writes; a transaction that asked to be read-only is no outage of ours', async () => {
    const database = await opened();
    await database.query('create table t (n int)');
    const asked = await errorOf(
      database.transaction(async (tx) => {
        await tx.query('set transaction read only');
        await tx.query('insert into t values (1)');
      }),
    );
    expect(asked).toMatchObject({ code: '25006' });
    expect(database.isOwnOutage(asked)).toBe(false);

    const { rows } = await database.query<{ name: string }>('select current_database() as name');
    await database.query(`alter database ${rows[0]?.name} set default_transaction_read_only = on`);
    await database.query(`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`);
    const fresh = await Database.connect({
      url: database.connectionConfig.connectionString ?? '',
      poolSize: 1,
    });
    onTestFinished(() => fresh.close());
    const error = await errorOf(fresh.transaction((tx) => tx.query('insert into t values (1)')));
    expect(isOutage(error)).toBe(true);
    expect(fresh.isOwnOutage(error)).toBe(true);
  });

  test('a connection error from elsewhere is ours only close to an outage of ours', async () => {
    const database = await opened();
    const elsewhere = new TypeError('fetch failed', { cause: await refused() });
    expect(isOutage(elsewhere)).toBe(true);
    expect(isOutage(new AggregateError([new Error('no'), elsewhere]))).toBe(true);
    expect(database.isOwnOutage(elsewhere)).toBe(false);
    // Thrown inside a transaction that is well, it is still not ours.
    await errorOf(
      database.transaction(async () => {
        throw elsewhere;
      }),
    );
    expect(database.isOwnOutage(elsewhere)).toBe(false);

    const failed = errorOf(database.run(nap, []));
    await until('it was terminated', async () => (await database.query(terminateNaps)).rows.length > 0);
    await failed;
    expect(database.isOwnOutage(elsewhere)).toBe(true);
    expect(database.isOwnOutage(new Error('the handler’s own bug'))).toBe(false);
  });

  test('errors of a statement are no outages, whatever is thrown', async () => {
    const database = await opened();
    const errors = [
      await errorOf(database.query('select 1 / 0')),
      await errorOf(database.query('selekt')),
      await errorOf(database.query(`set statement_timeout = 50; select pg_sleep(5)`)),
      new Error('x', { cause: 'a text' }),
      null,
      undefined,
      'text',
    ];
    expect(errors.map((error) => isOutage(error))).toEqual(errors.map(() => false));
    const cycle = new Error('a');
    cycle.cause = new Error('b', { cause: cycle });
    expect(isOutage(cycle)).toBe(false);
  });
});
