import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { FleetRates } from '../../src/server/access/fleet-rates.ts';
import { RateLimit } from '../../src/server/access/rate-limit.ts';
import { until } from '../support/until.ts';
import { type Ask, registerKind, server, type TestServer } from './support.ts';

const nightly = { cron: '0 3 * * *', kind: 'noop' };

/** Locks the tenant's schedule: every request that changes it waits until `free`. */
async function holdSchedule({ databaseUrl }: TestServer, tenantId: string) {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin');
  await client.query('select 1 from tallyman.schedules where tenant_id = $1 for update', [tenantId]);
  return { free: () => client.query('commit') };
}

const change = (ask: Ask) => ask('PUT', '/v1/schedules/nightly', nightly);

const waitingForLocks = async ({ databaseUrl }: TestServer): Promise<number> => {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  const { rows } = await client.query(
    `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  );
  await client.end();
  return rows.length;
};

test('SEC-5: slow requests of one tenant leave connections for another; each gets its answer', async () => {
  const scene = await server({
    config: { 'database.poolSize': 4, 'server.tenantConcurrency': 1, 'server.tenantWaiting': 10 },
  });
  await registerKind(scene, 'noop');
  const [slow, other] = [await scene.as('admin', 'slow'), await scene.as('admin', 'other')];
  expect((await change(slow)).status).toBe(200);
  const { free } = await holdSchedule(scene, 'slow');
  const changes = Array.from({ length: 11 }, () => change(slow));
  await until('the first one waits for the lock', async () => (await waitingForLocks(scene)) === 1);
  for (const path of ['/v1/jobs', '/v1/queues', '/v1/events'])
    expect((await other('GET', path)).status).toBe(200);
  expect((await change(other)).status).toBe(200);
  expect(await waitingForLocks(scene)).toBe(1);
  const refused = await change(slow);
  expect(refused).toMatchObject({ status: 429, body: { error: { code: 'TENANT_BUSY' } } });
  expect(refused.headers.get('retry-after')).toBe('1');
  await free();
  for (const answer of await Promise.all(changes)) expect(answer.status).toBe(200);
});

/** A tenant that has just asked for something: others are not alone any more. */
const isThere = async (ask: Ask) => expect((await ask('GET', '/v1/queues')).status).toBe(200);

test('SEC-5: a batch of one tenant waits for one of another, not for all 64 that came before', async () => {
  const scene = await server();
  await registerKind(scene, 'noop');
  const [greedy, other] = [await scene.as('producer', 'greedy'), await scene.as('producer', 'other')];
  const send = (ask: Ask, jobs: number) =>
    ask('POST', '/v1/jobs/batch', { jobs: Array.from({ length: jobs }, () => ({ kind: 'noop' })) });
  await Promise.all([send(greedy, 2), send(other, 2)]);
  // Each takes its time within the database, so that all have come before the first few are written.
  await scene.rows(`
    create function pause() returns trigger language plpgsql as $$ begin perform pg_sleep(0.05); return null; end $$;
    create trigger pause after insert on tallyman_server.audit_events for each statement execute function pause()`);
  let answered = 0;
  const batches = Array.from({ length: 64 }, async () => {
    const { status } = await send(greedy, 300);
    answered += 1;
    return status;
  });
  await until('the first one is answered', async () => answered > 0);
  const before = answered;
  expect((await send(other, 2)).status).toBe(201);
  expect(answered - before).toBeLessThan(32);
  expect(new Set(await Promise.all(batches))).toEqual(new Set([201]));
});

test('SEC-5: beside others a tenant has one large request in work; its small ones and those of others go on', async () => {
  const scene = await server();
  await registerKind(scene, 'noop');
  const [slow, other] = [await scene.as('admin', 'slow'), await scene.as('admin', 'other')];
  const text = 'x'.repeat(20_000);
  const large = (ask: Ask) => ask('PUT', '/v1/schedules/nightly', { ...nightly, payload: { text } });
  for (const ask of [slow, other]) expect((await large(ask)).status).toBe(200);
  const { free } = await holdSchedule(scene, 'slow');
  await isThere(other);
  const held = large(slow);
  await until('it waits for the lock', async () => (await waitingForLocks(scene)) === 1);
  await isThere(other);
  let isAnswered = false;
  // It would be refused at once, if it were read.
  const next = slow('POST', '/v1/jobs', `["${text}"`).then(({ status }) => {
    isAnswered = true;
    return status;
  });
  expect((await large(other)).status).toBe(200);
  expect((await slow('POST', '/v1/jobs', { kind: 'noop' })).status).toBe(201);
  expect((await other('POST', '/v1/jobs', `["${text}"`)).status).toBe(400);
  expect(isAnswered).toBe(false);
  await free();
  expect((await held).status).toBe(200);
  expect(await next).toBe(400);
});

test('SEC-5: beside others many small reads of one tenant use the database a part of the time', async () => {
  const scene = await server({ config: { 'server.largeRequestsPercent': 1 } });
  const [busy, calm] = [await scene.as('auditor', 'busy'), await scene.as('auditor', 'calm')];
  await isThere(calm);
  let isOver = false;
  let answered = 0;
  const reading = Array.from({ length: 8 }, async () => {
    while (!isOver) {
      await busy('GET', '/v1/queues');
      answered += 1;
    }
  });
  await until('all of its turns are used', () => answered >= 4);
  answered = 0;
  for (let i = 0; i < 40; i += 1) await isThere(calm);
  // Each of its four turns pauses for 100 to 250 ms. Without pauses it is answered several times as often as the calm one.
  expect(answered).toBeLessThan(80);
  isOver = true;
  await Promise.all(reading);
});

test('SEC-5: callers that go away while their large requests wait leave no turn taken', async () => {
  const scene = await server({ config: { 'server.tenantWaiting': 4 } });
  await registerKind(scene, 'noop');
  const { key } = await scene.keys.create({ tenantId: 'default', name: 'k', role: 'admin' });
  const [mine, other] = [await scene.as('admin', 'default'), await scene.as('admin', 'other')];
  const schedule = { ...nightly, payload: { text: 'x'.repeat(20_000) } };
  const large = (signal?: AbortSignal) =>
    fetch(`${scene.url}/v1/schedules/nightly`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(schedule),
      ...(signal && { signal }),
    });
  expect((await large()).status).toBe(200);
  const { free } = await holdSchedule(scene, 'default');
  await isThere(other);
  const held = large();
  await until('it waits for the lock', async () => (await waitingForLocks(scene)) === 1);
  const leaving = new AbortController();
  const gone = Array.from({ length: 8 }, async () => {
    await isThere(other);
    return large(leaving.signal).then(
      ({ status }) => status,
      () => 'gone',
    );
  });
  const statuses: (string | number)[] = [];
  for (const each of gone) void each.then((status) => statuses.push(status));
  await until('the line is full', async () => statuses.length === 4);
  expect(statuses).toEqual([429, 429, 429, 429]);
  leaving.abort();
  await Promise.all(gone);
  await free();
  expect((await held).status).toBe(200);
  expect((await mine('PUT', '/v1/schedules/nightly', schedule)).status).toBe(200);
});

test('SEC-5: a request whose statement takes too long is undone and says so', async () => {
  const scene = await server({ config: { 'server.statementTimeoutMs': 300 } });
  await registerKind(scene, 'noop');
  const ask = await scene.as('admin', 'acme');
  expect((await change(ask)).status).toBe(200);
  const { free } = await holdSchedule(scene, 'acme');
  expect(await change(ask)).toMatchObject({ status: 503, body: { error: { code: 'TOO_SLOW' } } });
  await free();
  expect((await change(ask)).status).toBe(200);
});

test('SEC-5: a tenant has so many live streams and no more; a closed one makes room', async () => {
  const scene = await server({ config: { 'server.tenantStreams': 2 } });
  const open = async (tenantId: string) => {
    const { key } = await scene.keys.create({ tenantId, name: 'k', role: 'auditor' });
    const controller = new AbortController();
    onTestFinished(() => controller.abort());
    const { status } = await fetch(`${scene.url}/v1/stream`, {
      headers: { authorization: `Bearer ${key}` },
      signal: controller.signal,
    });
    return { status, close: () => controller.abort() };
  };
  await scene.as('auditor', 'acme');
  const [first] = [await open('acme'), await open('acme')];
  expect((await open('acme')).status).toBe(429);
  expect((await open('default')).status).toBe(200);
  first?.close();
  await until('there is room', async () => (await open('acme')).status === 200);
});

test('SEC-5: processes share the rate of a key by what each of them is asked', async () => {
  const { tallyman } = await server();
  let now = 0;
  const process = () => {
    const limit = new RateLimit(100, 100, { now: () => now, isShared: true });
    const rates = new FleetRates(tallyman.database, limit);
    const granted = (requests: number, key = 'k'): number =>
      Array.from({ length: requests }, () => limit.take(key)).filter((waitS) => waitS === 0).length;
    return { granted, share: () => rates.share() };
  };
  const [busy, calm, other] = [process(), process(), process()];
  // In the first second they know nothing of each other.
  expect([busy.granted(300), calm.granted(100), other.granted(300, 'another')]).toEqual([100, 100, 100]);
  const second = async () => {
    await Promise.all([busy.share(), calm.share(), other.share()]);
    now += 1000;
    return [busy.granted(300), calm.granted(100), other.granted(300, 'another')];
  };
  // What is more than three seconds old does not count; on a slow machine that may be the last one.
  await until('each has its part', async () => (await second()).join() === '75,25,100');
  // One that is asked no more leaves its part to the others.
  await until('the whole limit is granted again', async () => {
    await Promise.all([calm.share(), other.share()]);
    now += 1000;
    return calm.granted(1000) === 100;
  });
});

test('SEC-5: a tenant that has as many jobs as it may waits for its workers; another one goes on', async () => {
  const scene = await server({ config: { 'server.tenantJobs': 50 } });
  await registerKind(scene, 'noop');
  const [greedy, other] = [await scene.as('producer', 'greedy'), await scene.as('producer', 'other')];
  const send = (ask: Ask, jobs: number) =>
    ask('POST', '/v1/jobs/batch', { jobs: Array.from({ length: jobs }, () => ({ kind: 'noop' })) });
  const taken: number[] = [];
  for (let i = 0; i < 20; i += 1) taken.push((await send(greedy, 5)).status);
  expect(taken.filter((status) => status === 429).length).toBeGreaterThanOrEqual(8);
  expect(taken.slice(0, 10)).toEqual(Array.from({ length: 10 }, () => taken[0]));
  expect((await send(greedy, 1)).body.error).toMatchObject({ code: 'BACKLOG_FULL' });
  expect((await send(other, 5)).status).toBeLessThan(300);
  await scene.rows(`delete from tallyman.jobs where tenant_id = 'greedy'`);
  await until('there is room again', async () => (await send(greedy, 1)).status < 300);
});

test('SEC-5: one tenant makes a quarter of the queues, by jobs and by schedules; then another one makes its own', async () => {
  const scene = await server({ config: { 'server.maxQueues': 40 } });
  await registerKind(scene, 'noop');
  const [greedy, other] = [await scene.as('operator', 'greedy'), await scene.as('operator', 'other')];
  const send = (ask: Ask, queue: string) => ask('POST', '/v1/jobs', { kind: 'noop', queue });
  const plan = (ask: Ask, queue: string) =>
    ask('PUT', `/v1/schedules/${queue}`, { cron: '@daily', kind: 'noop', queue });
  const statuses: number[] = [];
  for (let n = 0; n < 6; n += 1)
    statuses.push((await send(greedy, `job-${n}`)).status, (await plan(greedy, `schedule-${n}`)).status);
  expect(statuses.slice(0, 10).every((status) => status < 300)).toBe(true);
  expect(statuses.slice(10)).toEqual([429, 429]);
  expect((await plan(greedy, 'more')).body.error).toMatchObject({ code: 'TOO_MANY_QUEUES' });
  expect((await plan(greedy, 'schedule-0')).status).toBe(200);
  expect((await send(greedy, 'schedule-1')).status).toBe(201);
  expect([(await send(other, 'a')).status, (await plan(other, 'b')).status]).toEqual([201, 200]);
});

test('SEC-5: a tenant has so many schedules and no more; it can change those it has', async () => {
  const scene = await server({ config: { 'server.tenantSchedules': 3 } });
  await registerKind(scene, 'noop');
  const [ours, theirs] = [await scene.as('operator', 'ours'), await scene.as('operator', 'theirs')];
  const put = (ask: Ask, name: string) =>
    ask('PUT', `/v1/schedules/${name}`, { cron: '@daily', kind: 'noop' });
  const statuses: number[] = [];
  for (const name of ['a', 'b', 'c', 'd']) statuses.push((await put(ours, name)).status);
  expect(statuses).toEqual([200, 200, 200, 429]);
  expect((await put(ours, 'd')).body.error).toMatchObject({ code: 'TOO_MANY_SCHEDULES' });
  expect([(await put(ours, 'a')).status, (await put(theirs, 'a')).status]).toEqual([200, 200]);
  await ours('DELETE', '/v1/schedules/a');
  expect((await put(ours, 'd')).status).toBe(200);
});

test('SEC-5: a page of schedules ends where their payloads are large; one is shown without the others', async () => {
  const scene = await server();
  await registerKind(scene, 'noop');
  const ask = await scene.as('operator', 'acme');
  const payload = { text: 'x'.repeat(1_000_000) };
  const names = ['A', 'B', 'a', 'b', 'c', 'ä', 'é'];
  for (const name of names)
    await ask('PUT', `/v1/schedules/${encodeURIComponent(name)}`, { cron: '@daily', kind: 'noop', payload });
  const seen: string[] = [];
  const pages: number[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const after = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { body } = await ask('GET', `/v1/schedules?limit=200${after}`);
    seen.push(...body.items.map(({ name }: { name: string }) => name));
    pages.push(body.items.length);
    cursor = body.next_cursor;
  }
  expect({ seen, pages }).toEqual({ seen: names, pages: [5, 2] });
  expect((await ask('GET', '/v1/schedules/c')).body.name).toBe('c');
  expect((await ask('POST', '/v1/schedules/none/pause')).status).toBe(404);
});

test('SEC-5: enqueueing makes new queues up to a number; those that are there go on', async () => {
  const scene = await server({ config: { 'server.maxQueues': 10 } });
  await registerKind(scene, 'noop');
  const ask = await scene.as('producer');
  const send = async (queue: string) => (await ask('POST', '/v1/jobs', { kind: 'noop', queue })).status;
  const statuses: number[] = [];
  for (let n = 0; n < 15; n += 1) statuses.push(await send(`q${n}`));
  const [{ n } = { n: 0 }] = await scene.rows<{ n: number }>(
    'select count(*)::integer as n from tallyman.queues',
  );
  expect(n).toBe(10);
  expect(statuses.slice(10)).toEqual(Array.from({ length: 5 }, () => 429));
  expect(await send('q0')).toBe(201);
});
