import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { Database } from '../../src/engine/database/database.ts';
import { asTenant } from '../../src/engine/database/tenant.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { engine } from '../support/engine.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { until } from '../support/until.ts';

/*
 * The ends of a Tallyman's life: an address that is not there, and what happens at close() and after it.
 */

async function opened(): Promise<{ tallyman: Tallyman; url: string }> {
  const { url, drop } = await emptyDatabase();
  const tallyman = await Tallyman.open({
    databaseUrl: url,
    migrate: true,
    logger: silentLogger,
    poolSize: 4,
  });
  onTestFinished(async () => {
    await tallyman.close();
    await drop();
  });
  return { tallyman, url };
}

const any = defineKind({ name: 'any', handler: () => {} });

test.each([undefined, null, '', ' ', 5])(
  'databaseUrl: %j is refused, and says what is missing',
  async (given) => {
    const refusal = {
      code: 'BAD_DATABASE_URL',
      message: expect.stringMatching(/address of the database is missing: databaseUrl is .*DATABASE_URL/),
    };
    await expect(Tallyman.open({ databaseUrl: given as never })).rejects.toMatchObject(refusal);
    await expect(Database.connect({ url: given as never })).rejects.toMatchObject(refusal);
  },
);

test('no options at all, or an address of something else, is refused as clearly', async () => {
  await expect(Tallyman.open(undefined as never)).rejects.toMatchObject({ code: 'BAD_DATABASE_URL' });
  await expect(Tallyman.open({ databaseUrl: 'mysql://a:secret@b/c' })).rejects.toMatchObject({
    code: 'BAD_DATABASE_URL',
    message: expect.not.stringContaining('secret'),
  });
});

test('CLOSED: every method after close() says so', async () => {
  const { tallyman } = await opened();
  const worker = tallyman.worker({ kinds: [any] });
  await tallyman.close();
  const { database, jobs, deadLetters, lanes, queues, schedules, checkpoints, log } = tallyman;
  const calls: Readonly<Record<string, () => unknown>> = {
    enqueue: () => tallyman.enqueue(any, {}),
    enqueueMany: () => tallyman.enqueueMany(any, [{ payload: {} }]),
    hint: () => tallyman.hint(['default']),
    check: () => tallyman.check(),
    worker: () => tallyman.worker({ kinds: [any] }),
    exclusively: () => tallyman.exclusively(1, async () => {}),
    'worker.start': () => worker.start(),
    'jobs.get': () => jobs.get('1'),
    'jobs.list': () => jobs.list(),
    'jobs.cancel': () => jobs.cancel('1'),
    'jobs.retry': () => jobs.retry('1'),
    'jobs.counts': () => jobs.counts(),
    'deadLetters.get': () => deadLetters.get('1'),
    'deadLetters.list': () => deadLetters.list(),
    'deadLetters.redrive': () => deadLetters.redrive('1'),
    'deadLetters.redriveAll': () => deadLetters.redriveAll({}),
    'deadLetters.discard': () => deadLetters.discard(['1']),
    'deadLetters.discardAll': () => deadLetters.discardAll({}),
    'lanes.get': () => lanes.get('l'),
    'lanes.find': () => lanes.find('1'),
    'lanes.list': () => lanes.list(),
    'lanes.unblock': () => lanes.unblock('l'),
    'queues.list': () => queues.list(),
    'queues.pause': () => queues.pause('q'),
    'queues.resume': () => queues.resume('q'),
    'queues.configure': () => queues.configure('q', { maxRunning: 1 }),
    'schedules.upsert': () => schedules.upsert({ name: 's', cron: '@hourly', kind: any, payload: {} }),
    'schedules.list': () => schedules.list(),
    'schedules.page': () => schedules.page('default'),
    'schedules.get': () => schedules.get('s'),
    'schedules.tenantsWith': () => schedules.tenantsWith('s'),
    'schedules.remove': () => schedules.remove('s'),
    'schedules.pause': () => schedules.pause('s'),
    'schedules.resume': () => schedules.resume('s'),
    'schedules.dueInMs': () => schedules.dueInMs(),
    'schedules.runDue': () => schedules.runDue(),
    'checkpoints.load': () => checkpoints.load('c'),
    'log.append': () => log.append('l', { key: 'k', payload: {} }),
    'log.appendAll': async () => {
      // It has an answer for each entry.
      const [answer] = await log.appendAll('l', [{ key: 'k', payload: {} }]);
      if (answer instanceof Error) throw answer;
    },
    'log.find': () => log.find('l', 'k'),
    'log.head': () => log.head('l'),
    'log.stream': () => log.stream('l'),
    'log.streams': () => log.streams(),
    'log.offsetAt': () => log.offsetAt('l', new Date(0)),
    'log.deleteStream': () => log.deleteStream('l'),
    'log.newEpoch': () => log.newEpoch('l'),
    'log.trim': () => log.trim('l', 1),
    'log.read': () => log.read('l', { after: 0, limit: 1 }),
    'database.query': () => database.query('select 1'),
    'database.transaction': () => database.transaction(async () => {}),
    'database.dedicated': () => database.dedicated(),
    'database.queryWithin': () => database.queryWithin('select 1', { text: 'select 1', values: [] }),
    'database.pipelined': () => database.pipelined([{ text: 'select 1', values: [] }]),
    'database.warm': () => database.warm(1),
    asTenant: () => asTenant(database, 'a', async () => {}),
  };
  for (const [name, call] of Object.entries(calls)) {
    const outcome = await (async () => call())().then(
      () => 'it was accepted',
      (error) => error.code,
    );
    expect({ name, outcome }).toEqual({ name, outcome: 'CLOSED' });
  }
  // Every method of the nouns is in the list, but for those that belong to a transaction of the caller, and the end itself.
  const methods = Object.entries({ jobs, deadLetters, lanes, queues, schedules, log }).flatMap(
    ([name, noun]) =>
      Object.getOwnPropertyNames(Object.getPrototypeOf(noun))
        .filter((method) => method !== 'constructor')
        .map((method) => `${name}.${method}`),
  );
  const others = ['log.appendWithin', 'log.grew', 'log.stop'];
  expect(methods.filter((method) => !(method in calls) && !others.includes(method))).toEqual([]);
});

test('CLOSED: close() twice, also at once, is one close', async () => {
  const { tallyman } = await opened();
  await Promise.all([tallyman.close(), tallyman.close()]);
  await tallyman.close();
});

test('CLOSED: what is under way when close() is called ends well', async () => {
  const { tallyman, url } = await opened();
  const { database } = tallyman;
  const enqueued = Array.from({ length: 200 }, (_, i) => tallyman.enqueue(any, { i }));
  const many = tallyman.enqueueMany(any, [{ payload: 'many' }]);
  // More than the pool has connections: the last ones wait for one.
  const queries = Array.from({ length: 12 }, () => database.query('select pg_sleep(0.05)'));
  const transaction = database.transaction(async (tx) => {
    await sleep(200);
    await tallyman
      .enqueue(any, 'in a transaction', { tx })
      .catch((error) => expect(error.code).toBe('CLOSED'));
    await tx.query('select 1');
    return 'committed';
  });
  const closed = tallyman.close();
  const outcomes = await Promise.allSettled([...enqueued, many, ...queries, transaction]);
  expect(outcomes.filter(({ status }) => status === 'rejected')).toEqual([]);
  expect(await transaction).toBe('committed');
  await closed;
  const again = await Tallyman.open({ databaseUrl: url, logger: silentLogger });
  onTestFinished(() => again.close());
  expect((await again.jobs.counts()).QUEUED).toBe(201);
});

test('CLOSED: a handler that runs during close() may still enqueue and commit', async () => {
  const { tallyman, url } = await opened();
  let began = false;
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const slow = defineKind({
    name: 'slow',
    handler: async (_, ctx) => {
      began = true;
      await released;
      await tallyman.enqueue(any, 'from a handler');
      await ctx.commit(async (tx) => {
        await ctx.enqueue(any, 'from its commit', { tx });
      });
    },
  });
  const worker = tallyman.worker({ kinds: [slow] });
  await worker.start();
  const { id } = await tallyman.enqueue(slow, {});
  await until('it runs', () => began);
  const closed = tallyman.close();
  release();
  await closed;
  const again = await Tallyman.open({ databaseUrl: url, logger: silentLogger });
  onTestFinished(() => again.close());
  expect((await again.jobs.get(id))?.status).toBe('SUCCEEDED');
  expect((await again.jobs.list({ kind: 'any' })).items.map(({ payload }) => payload).toSorted()).toEqual([
    'from a handler',
    'from its commit',
  ]);
});

test('ENG-13: a queue can be paused before its first job; the job waits until it is resumed', async () => {
  const { tallyman, work } = await engine();
  const ran: unknown[] = [];
  const kind = defineKind({ name: 'k', queue: 'not-yet', handler: (payload) => void ran.push(payload) });
  expect(await tallyman.queues.pause('not-yet')).toBe(false);
  expect(await tallyman.queues.pause('not-yet')).toBe(true);
  expect(await tallyman.queues.list()).toMatchObject([{ name: 'not-yet', paused: true, ready: 0 }]);
  await work({ kinds: [kind, defineKind({ name: 'probe', handler: (payload) => void ran.push(payload) })] });
  await tallyman.enqueue(kind, 'paused');
  await tallyman.database.query(`select tallyman.register_kind('probe')`);
  await tallyman.database.query(`select tallyman.enqueue('probe', '"probe"')`);
  await until('the other queue runs', () => ran.length > 0);
  expect(ran).toEqual(['probe']);
  expect((await tallyman.queues.list()).find(({ name }) => name === 'not-yet')).toMatchObject({ ready: 1 });
  await tallyman.queues.resume('not-yet');
  await until('it ran', () => ran.length === 2);
  await expect(tallyman.queues.resume('no-such')).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await expect(tallyman.queues.pause('')).rejects.toMatchObject({ code: 'BAD_OPTION' });
});
