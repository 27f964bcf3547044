import { expect, test } from 'vitest';
import { until } from '../support/until.ts';
import { registerKind, server, type TestServer } from './support.ts';

const event = (more: object = {}) => ({
  event_type: 'pallet.moved',
  aggregate_type: 'pallet',
  aggregate_id: 'P-1',
  ...more,
});

/** Commits take their time, so that requests arrive while one is under way, however quick the machine is. */
const slowDown = ({ rows }: TestServer) =>
  rows(`
    create function pause() returns trigger language plpgsql as $$ begin perform pg_sleep(0.05); return null; end $$;
    create trigger pause after insert on tallyman_server.audit_events for each statement execute function pause()`);

test('API-1: events that come together share commits, each with its own event, audit line and answer', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  await slowDown(test);
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) =>
      ask('POST', '/v1/events', event({ payload: { i } }), { 'x-correlation-id': `c${i}` }),
    ),
  );
  // Jobs go into the same commits.
  const job = await ask('POST', '/v1/jobs', { kind: 'noop' });
  expect(job.status).toBe(201);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]));
  const rows = await test.rows<{ id: string; payload: { i: number } }>(
    'select id::text, payload from tallyman_events.events',
  );
  const byId = new Map(rows.map(({ id, payload }) => [`evt_${id}`, payload.i]));
  expect(answers.map(({ body }) => [byId.get(body.event_id), body.existing])).toEqual(
    answers.map((_, i) => [i, false]),
  );
  const audit = await test.rows<{ correlation_id: string }>(
    `select correlation_id from tallyman_server.audit_events where action = 'events.emit' and status = 202`,
  );
  expect(new Set(audit.map((line) => line.correlation_id)).size).toBe(100);
  const [{ n } = { n: 100 }] = await test.rows<{ n: number }>(
    'select count(distinct xmin::text)::int as n from tallyman_events.events',
  );
  // One at a time they would be 100.
  expect(n).toBeLessThan(60);
});

test('API-1: the same event id, or the same Idempotency-Key, at once: one event', async () => {
  const test = await server();
  const ask = await test.as('producer');
  const twins = await Promise.all(
    Array.from({ length: 10 }, () => ask('POST', '/v1/events', event({ event_id: 'order-1' }))),
  );
  expect(twins.filter(({ body }) => body.existing === false)).toHaveLength(1);
  expect(new Set(twins.map(({ body }) => body.event_id))).toEqual(new Set(['order-1']));
  const key = { 'idempotency-key': 'k' };
  const repeated = await Promise.all(
    Array.from({ length: 10 }, () => ask('POST', '/v1/events', event({ aggregate_id: 'P-2' }), key)),
  );
  expect(
    new Set(repeated.map(({ status, body }) => `${status} ${body.event_id} ${body.existing}`)).size,
  ).toBe(1);
  expect(repeated.filter(({ headers }) => headers.get('idempotency-replayed') === 'true')).toHaveLength(9);
  expect((await ask('POST', '/v1/events', event({ aggregate_id: 'P-3' }), key)).status).toBe(409);
  expect(await test.rows('select aggregate_id from tallyman_events.events order by id')).toEqual([
    { aggregate_id: 'P-1' },
    { aggregate_id: 'P-2' },
  ]);
});

test('API-1: what is refused among others is refused alone, and tenants stay apart', async () => {
  const test = await server();
  const asks = [await test.as('producer'), await test.as('producer', 'acme')] as const;
  await slowDown(test);
  const answers = await Promise.all(
    Array.from({ length: 30 }, (_, i) =>
      (asks[i % 2] as (typeof asks)[0])(
        'POST',
        '/v1/events',
        i === 7
          ? event({ event_type: 'rfid.movement' })
          : i === 8
            ? event({ event_id: 'evt_1' })
            : event({ aggregate_id: `P-${i}` }),
      ),
    ),
  );
  expect(answers.flatMap(({ status }, i) => (status === 202 ? [] : [i]))).toEqual([7, 8]);
  const rows = await test.rows<{ tenant_id: string; aggregate_id: string }>(
    'select tenant_id, aggregate_id from tallyman_events.events',
  );
  expect(rows).toHaveLength(28);
  for (const { tenant_id, aggregate_id } of rows)
    expect(tenant_id).toBe(Number(aggregate_id.slice(2)) % 2 === 0 ? 'default' : 'acme');
});

test('API-1: an event whose id another transaction has waits by itself; others go on', async () => {
  const test = await server();
  const ask = await test.as('producer');
  const other = await test.tallyman.database.dedicated();
  await other.query('begin');
  await other.query(`select tallyman_events.emit('a', 't', 'x', event_id => 'held')`);
  let answered = false;
  const waiting = ask('POST', '/v1/events', event({ event_id: 'held' })).then((answer) => {
    answered = true;
    return answer;
  });
  const free = await ask('POST', '/v1/events', event({ aggregate_id: 'free' }));
  expect(free.status).toBe(202);
  expect(answered).toBe(false);
  await other.query('commit');
  await other.end();
  await until('it is answered', () => answered);
  expect((await waiting).body).toEqual({ event_id: 'held', existing: true });
});
