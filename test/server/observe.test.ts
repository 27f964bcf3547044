import { expect, onTestFinished, test } from 'vitest';
import { until } from '../support/engine.ts';
import { privateNats } from '../support/services/nats.ts';
import { type Ask, bury, registerKind, server, type TestServer } from './support.ts';

test('live always; ready with database and migrations; degraded or 503 without a broker, as configured', async () => {
  const nats = await privateNats();
  onTestFinished(() => nats[Symbol.asyncDispose]());
  await nats.start();
  const lenient = await server({ config: { 'wakeups.nats.servers': nats.url } });
  const strict = await server({ config: { 'wakeups.nats.servers': nats.url, 'health.requireQueue': true } });
  const ready = async ({ ask }: TestServer) => {
    const { status, body } = await ask('GET', '/v1/health/ready');
    return [status, body.status, body.checks.nats?.status];
  };
  for (const each of [strict, lenient]) {
    await until('it is up', async () => (await ready(each))[2] === 'up');
    expect(await ready(each)).toEqual([200, 'ready', 'up']);
  }
  await nats.kill();
  await until('it is noticed', async () => (await ready(strict))[0] === 503);
  expect(await ready(strict)).toEqual([503, 'unready', 'down']);
  await until('it is noticed here, too', async () => (await ready(lenient))[1] === 'degraded');
  expect(await ready(lenient)).toEqual([200, 'degraded', 'down']);
  expect((await lenient.ask('GET', '/v1/health/live')).status).toBe(200);
  await nats.start();
  await until('it is back', async () => (await ready(strict))[1] === 'ready', 60_000);

  const auditor = await lenient.as('auditor');
  await lenient.rows(`delete from tallyman.migrations where component = 'server'`);
  await until('it is noticed', async () => (await ready(lenient))[0] === 503);
  const { body } = await auditor('GET', '/v1/health/ready');
  expect(body.checks.migrations).toEqual({
    status: 'down',
    reason: expect.stringContaining('tallyman migrate'),
  });
});

test('SEC-4: probes share one look on the pool; strangers get no reasons', async () => {
  const test = await server();
  await test.rows(`update tallyman.migrations set version = 900 where component = 'server' and version = 1`);
  const readerKey = await test.as('auditor');
  const producerKey = await test.as('producer');
  const { database } = test.tallyman;
  const statements: string[] = [];
  const { query } = database;
  database.query = ((...args: Parameters<typeof query>) => {
    statements.push(String(args[0]));
    return query.apply(database, args);
  }) as typeof query;
  const dedicated: string[] = [];
  database.dedicated = ((name: string) => {
    dedicated.push(name);
    throw new Error('a probe takes no connection of its own');
  }) as typeof database.dedicated;
  const answers = await Promise.all(Array.from({ length: 200 }, () => test.ask('GET', '/v1/health/ready')));
  expect(dedicated).toEqual([]);
  // At most a look each second; they all came within one, or the machine was slow.
  expect(statements.filter((text) => text === 'select 1').length).toBeLessThan(20);
  for (const { status, body } of answers)
    expect([status, body]).toEqual([
      503,
      { status: 'unready', checks: { database: { status: 'up' }, migrations: { status: 'down' } } },
    ]);
  const migrations = async (ask: Ask) => (await ask('GET', '/v1/health/ready')).body.checks.migrations;
  expect(await migrations(readerKey)).toEqual({ status: 'down', reason: expect.any(String) });
  expect(await migrations(producerKey)).toEqual({ status: 'down' });
  const forged = { authorization: `Bearer tlm_${'a'.repeat(12)}_${'b'.repeat(43)}` };
  expect((await test.ask('GET', '/v1/health/ready', undefined, forged)).status).toBe(401);
});

test('metrics for the home tenant, with requests by route', async () => {
  const test = await server();
  const ask = await test.as('auditor');
  await ask('GET', '/v1/jobs/17');
  await ask('GET', '/v1/jobs/18');
  const { headers, body } = await ask('GET', '/metrics');
  expect(headers.get('content-type')).toContain('text/plain');
  expect(body).toContain('tallyman_database_up 1');
  expect(body).toMatch(/tallyman_http_request_duration_seconds_count\{[^}]*route="\/v1\/jobs\/:id"[^}]*\} 2/);
  expect((await test.ask('GET', '/metrics')).status).toBe(401);
  const open = await server({ config: { 'server.publicMetrics': true } });
  await open.as('admin');
  expect((await open.ask('GET', '/metrics')).status).toBe(200);
});

test('the stream tells counts and events of one tenant, from one poller however many listen', async () => {
  const test = await server();
  const [a, b] = [await test.as('operator', 'a'), await test.as('operator', 'b')];
  await registerKind(test, 'noop');
  const { key } = await test.keys.create({ tenantId: 'a', name: 's', role: 'auditor' });
  const listeners = await Promise.all(Array.from({ length: 20 }, () => listen(`${test.url}/v1/stream`, key)));
  await until('the first counts came', () => listeners.every(({ events }) => events.length > 0));
  const asked = async () => {
    const [row] = await test.rows<{ n: string }>(
      `select count(*) as n from pg_stat_activity 
        where datname = current_database() and query like '%finished_last_minute%' and pid <> pg_backend_pid()`,
    );
    return Number(row?.n);
  };
  expect(await asked()).toBeLessThanOrEqual(2);
  const { id } = (await a('POST', '/v1/jobs', { kind: 'noop' })).body;
  const other = (await b('POST', '/v1/jobs', { kind: 'noop' })).body;
  await until('the job is counted', () => listeners.every(({ events }) => events.at(-1)?.data.ready === 1));
  await bury(test, id);
  await bury(test, other.id);
  await until('the dead letter is told', () =>
    listeners.every(({ events }) =>
      events.some(({ event, data }) => event === 'event' && data.payload.id === id),
    ),
  );
  await until('it is counted', () =>
    listeners.every(({ events }) => {
      const { data } = events.findLast(({ event }) => event === 'counts') ?? {};
      return data?.ready === 0 && data.dead_letters === 1;
    }),
  );
  // An event after those of both tenants: what is told by then is all.
  const last = { event_type: 'pallet.moved', aggregate_type: 'pallet', aggregate_id: 'last' };
  await a('POST', '/v1/events', last);
  const toldOf = ({ events }: (typeof listeners)[number]) =>
    events.filter(({ event }) => event === 'event').map(({ data }) => data);
  await until('the last is told', () =>
    listeners.every((listener) => toldOf(listener).at(-1)?.aggregate_id === 'last'),
  );
  for (const listener of listeners)
    expect(toldOf(listener)).toMatchObject([
      { event_type: 'job.dead_letter', aggregate_id: id },
      { event_type: 'pallet.moved', aggregate_id: 'last' },
    ]);
  expect((await test.ask('GET', '/v1/stream')).status).toBe(401);
});

async function listen(url: string, key: string) {
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const response = await fetch(url, {
    headers: { authorization: `Bearer ${key}` },
    signal: controller.signal,
  });
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  // biome-ignore lint/suspicious/noExplicitAny: whatever the server said
  const events: { event: string; data: any }[] = [];
  void (async () => {
    let rest = '';
    for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
      rest += Buffer.from(chunk).toString();
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const found = /^(?:id: \d+\n)?event: (.*)\ndata: (.*)$/.exec(rest.slice(0, end));
        if (found) events.push({ event: found[1] ?? '', data: JSON.parse(found[2] ?? '') });
        rest = rest.slice(end + 2);
      }
    }
  })().catch(() => {});
  return { events };
}
