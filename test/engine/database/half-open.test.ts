import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Database, type DatabaseOptions, isConnectionError } from '../../../src/engine/database/database.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { Tallyman } from '../../../src/engine/tallyman.ts';
import { PostgresWakeup } from '../../../src/engine/wakeups/postgres.ts';
import { ChaosProxy } from '../../support/chaos-proxy.ts';
import { drained, engine, until } from '../../support/engine.ts';
import { emptyDatabase } from '../../support/postgres.ts';

const one = { name: 'one', text: 'select 1' };
const nap = { name: 'nap', text: 'select pg_sleep($1::float8)' };

/** Generous: the deadlines here are a fraction of it, and without them nothing ends at all. */
const soon = 60_000;

async function proxied(options: Partial<DatabaseOptions> = {}) {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const proxy = await ChaosProxy.before(url);
  const database = await Database.connect({
    url: proxy.url,
    poolSize: 4,
    // Far more than a busy server needs: statements on connections that are well must not meet it.
    statementTimeoutMs: 2000,
    ...options,
  });
  onTestFinished(() => Promise.race([database.close(), sleep(soon)]));
  return { proxy, database };
}

/** Fails instead of waiting for ever. */
async function within<T>(ms: number, answer: Promise<T>): Promise<T> {
  const late = sleep(ms, undefined, { ref: false }).then(() => {
    throw new Error(`no answer within ${ms} ms`);
  });
  return Promise.race([answer, late]);
}

describe('ENG-18: connections that go silent without being closed', () => {
  test.each([false, true])(
    'cost a statement one deadline, and all idle connections are replaced (hot: %s)',
    async (hot) => {
      const { proxy, database } = await proxied();
      await database.warm(4);
      if (hot) {
        database.keepHotConnection();
        await until('the hot connection is there', async () => {
          await database.run(one, []);
          return database.isHotConnectionFree;
        });
      }
      await database.run(one, []);
      expect(proxy.freeze()).toBe(hot ? 5 : 4);

      const error = await within(
        soon,
        database.run(one, []).catch((reason) => reason),
      );
      expect(error).toMatchObject({ code: 'ETIMEDOUT' });
      expect(isConnectionError(error)).toBe(true);
      // None of them meets another silent connection: that would be an error.
      for (let i = 0; i < 10; i += 1)
        await within(soon, Promise.all([1, 2, 3, 4].map(() => database.run(one, []))));
    },
  );

  test('the first statement of a transaction finds out as soon as any other', async () => {
    const { proxy, database } = await proxied();
    proxy.freeze();
    const work = async () => 'done';
    await expect(within(soon, database.transaction(work))).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    expect(await within(soon, database.transaction(work))).toBe('done');
  });

  test('statements inside a transaction, and plain queries, have a deadline, too', async () => {
    const { proxy, database } = await proxied({ queryTimeoutMs: 2000 });
    const inside = database.transaction(async (tx) => {
      proxy.freeze();
      await tx.query('select 1');
    });
    await expect(within(soon, inside)).rejects.toMatchObject({ code: 'ETIMEDOUT' });
    await database.query('select 1');
    proxy.freeze();
    await expect(within(soon, database.query('select 1'))).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  });

  test('a blocked event loop is not mistaken for silence', async () => {
    const { database } = await proxied({ statementTimeoutMs: 600 });
    const answer = database.run(nap, [0.1]);
    await sleep(20);
    for (const end = Date.now() + 2500; Date.now() < end; );
    expect(await answer).toHaveLength(1);
  });

  test('a transaction between two statements is left alone when another connection is silent', async () => {
    const { proxy, database } = await proxied({ applicationName: 'silent one' });
    const other = await Database.connect({ url: proxy.url, poolSize: 2, statementTimeoutMs: 500 });
    onTestFinished(() => other.close());
    await other.transaction(async (tx) => {
      await tx.query('create table t (n int)');
      proxy.freeze('silent one');
      await expect(database.run(one, [])).rejects.toMatchObject({ code: 'ETIMEDOUT' });
      await expect(other.run(nap, [5])).rejects.toMatchObject({ code: 'ETIMEDOUT' });
      await tx.query('insert into t values (1)');
    });
    expect((await other.query('select n from t')).rows).toEqual([{ n: 1 }]);
  });

  test.each(['', 'tallyman wake-ups'])('LISTEN hears again (silent: "%s")', async (silent) => {
    const { proxy, database } = await proxied();
    const heard: (string | null)[] = [];
    const wakeup = new PostgresWakeup(database);
    onTestFinished(() => Promise.race([wakeup.stop(), sleep(soon)]));
    await wakeup.start(({ queue }) => heard.push(queue));
    // Older than the statement that will be overdue.
    await sleep(300);
    proxy.freeze(silent);
    await within(
      soon,
      database.run(one, []).catch(() => {}),
    );
    await until(
      'a notification arrives',
      async () => {
        await database.query(`select pg_notify('tallyman_jobs', 'printing')`);
        return heard.includes('printing');
      },
      soon,
    );
  });

  test('enqueue and a worker are back after one deadline', async () => {
    const { url } = await engine();
    const proxy = await ChaosProxy.before(url);
    const tallyman = await Tallyman.open({
      databaseUrl: proxy.url,
      statementTimeoutMs: 2500,
      housekeeping: false,
    });
    onTestFinished(() => Promise.race([tallyman.close(), sleep(soon)]));
    const done = new Set<number>();
    const count = defineKind({
      name: 'count',
      handler: async ({ n }: { n: number }) => void done.add(n),
    });
    const worker = tallyman.worker({ kinds: [count], pollIntervalMs: 100, stopTimeoutMs: 1000 });
    await worker.start();
    await tallyman.enqueue(count, { n: 0 });
    await until('the worker works', () => done.has(0));
    // Its connections are older than the statement that will be overdue.
    await sleep(300);

    proxy.freeze();
    await within(
      soon,
      tallyman.enqueue(count, { n: 1 }).catch(() => {}),
    );
    await within(soon, tallyman.enqueue(count, { n: 2 }));
    await until('the worker is back', () => done.has(2), soon);
  });

  test('when only the heartbeat is silent, the job keeps its lease and runs once', async () => {
    const bundle = await engine();
    const proxy = await ChaosProxy.before(bundle.url);
    const tallyman = await Tallyman.open({ databaseUrl: proxy.url, housekeeping: false });
    onTestFinished(() => tallyman.close());
    let runs = 0;
    const slow = defineKind({
      name: 'slow',
      handler: async () => {
        runs += 1;
        await sleep(12_000);
      },
    });
    const options = { kinds: [slow], leaseMs: 6000, pollIntervalMs: 100, recoverIntervalMs: 200 };
    const worker = tallyman.worker(options);
    await worker.start();
    await tallyman.enqueue(slow, {});
    await until('it runs', () => runs === 1);
    await until(
      'the heartbeat is connected',
      async () =>
        (
          await bundle.rows(
            `select 1 from pg_stat_activity where datname = current_database() and application_name = 'tallyman heartbeat'`,
          )
        ).length === 1,
    );
    await bundle.work(options);
    expect(proxy.freeze('tallyman heartbeat')).toBe(1);
    await drained(bundle);
    expect(runs).toBe(1);
    const history = await bundle.rows('select status, attempts from tallyman.history');
    expect(history).toEqual([{ status: 'SUCCEEDED', attempts: 1 }]);
  });
});

test('ENG-18: a heartbeat whose connection is ended is back at once, not at the next renewal', async () => {
  const bundle = await engine();
  const kind = defineKind({ name: 'k', handler: async () => {} });
  await bundle.work({ kinds: [kind], leaseMs: 120_000 });
  const heartbeat = () =>
    bundle.rows<{ pid: number }>(
      `select pid from pg_stat_activity where datname = current_database() and application_name = 'tallyman heartbeat'`,
    );
  await until('the heartbeat is connected', async () => (await heartbeat()).length === 1, soon);
  const [before] = await heartbeat();
  await bundle.rows('select pg_terminate_backend($1)', [before?.pid]);
  await until(
    'it is connected again',
    async () => (await heartbeat()).some(({ pid }) => pid !== before?.pid),
    soon,
  );
});
