import { expect, test } from 'vitest';
import { webhookFollower } from '../../../src/apps/webhooks/follower.ts';
import { takeTenantRole } from '../../../src/engine/database/tenant.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { drained, until } from '../../support/engine.ts';
import { ok, receiver } from './support/receiver.ts';
import { webhookScene } from './support/scene.ts';

const url = 'http://127.0.0.1:9/';
const event = { type: 'pallet.moved', aggregateType: 'pallet', aggregateId: 'P-1', payload: {} };

test('WH-1: an event is in the transaction that causes it, or nowhere; its jobs come after that commit', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url });
  const { database } = scene.tallyman;
  const failing = database.transaction(async (tx) => {
    expect(await scene.events.emit(event, { tx })).toMatchObject({ existing: false });
    throw new Error('changed my mind');
  });
  await expect(failing).rejects.toThrow('changed my mind');
  await scene.fanOut();
  expect(await scene.rows('select 1 from tallyman_events.events')).toEqual([]);
  expect(await scene.rows('select 1 from tallyman.jobs')).toEqual([]);
  await database.transaction((tx) => scene.events.emit(event, { tx }));
  await scene.fanOut();
  expect(await scene.rows('select kind, queue, priority, max_attempts from tallyman.live_jobs')).toEqual([
    { kind: 'webhook.deliver', queue: 'webhooks', priority: 3, max_attempts: 5 },
  ]);
});

test('WH-1, WH-11: one delivery job for each endpoint that is enabled and subscribes by type or prefix, and for no other tenant’s', async () => {
  const scene = await webhookScene();
  const add = async (eventTypes: string[], tenantId = 'default') =>
    (await scene.endpoint({ url, eventTypes, tenantId })).id;
  const all = await add(['*']);
  const exact = await add(['other', 'pallet.moved']);
  const family = await add(['pallet.*']);
  await add(['pallet']);
  await add(['palle.*', 'pallet.moved.far']);
  await add(['*'], 'acme');
  await scene.webhooks.disable(await add(['*']));
  await scene.fanOut();
  await scene.rows('delete from tallyman.jobs');
  await scene.events.emit(event);
  await scene.fanOut();
  const rows = await scene.rows<{ endpoint: string }>(
    `select payload ->> 'endpoint' as endpoint from tallyman.jobs`,
  );
  expect(rows.map(({ endpoint }) => endpoint).sort()).toEqual([all, exact, family].sort());
});

test('WH-1: the same event id again does nothing; of another tenant it is another event', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url });
  const once = { ...event, id: 'move-1' };
  expect(await scene.events.emit(once)).toMatchObject({ eventId: 'move-1', existing: false });
  expect(await scene.events.emit(once)).toMatchObject({ eventId: 'move-1', existing: true });
  expect(await scene.events.emit({ ...once, tenantId: 'acme' })).toMatchObject({ existing: false });
  await scene.fanOut();
  expect(await scene.rows('select 1 from tallyman.jobs')).toHaveLength(1);
  await expect(scene.events.emit({ ...event, id: 'a.b' })).rejects.toThrow('is not an event id');
});

test('WH-1: who acts for one tenant emits for that tenant and sees no other’s endpoints', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url, tenantId: 'acme' });
  await scene.endpoint({ url, tenantId: 'evil' });
  const as = <T>(tenant: string, sql: string) =>
    scene.tallyman.database.transaction(async (tx) => {
      await tx.query(takeTenantRole);
      await tx.query(`select set_config('tallyman.tenant', $1, true)`, [tenant]);
      return (await tx.query(sql)).rows as T[];
    });
  const emit = `select tallyman_events.emit('a', 't', '1', '{}', 'acme', 'one') as n`;
  expect(await as('acme', emit)).toEqual([{ n: 'one' }]);
  await expect(as('evil', emit)).rejects.toThrow('row-level security');
  expect(await as('evil', 'select tenant_id from tallyman_webhooks.endpoints')).toEqual([
    { tenant_id: 'evil' },
  ]);
  expect(await as('evil', 'select 1 from tallyman_events.events')).toEqual([]);
});

test('WH-1: a dead letter is an event for who subscribes; a dead delivery is none', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  await scene.endpoint({ url: to.url, eventTypes: ['job.*'] });
  await scene.endpoint({ url, eventTypes: ['job.dead_letter'], maxAttempts: 1 });
  const doomed = defineKind({
    name: 'doomed',
    retry: { maxAttempts: 1 },
    handler: () => {
      throw new Error('no luck');
    },
  });
  await scene.work({ kinds: [doomed] });
  const { id } = await scene.tallyman.enqueue(doomed, {});
  await scene.deliver();
  await until(
    'both are buried',
    async () => (await scene.rows('select 1 from tallyman.dead_letters')).length === 2,
  );
  await drained(scene);
  expect(to.requests).toHaveLength(1);
  expect(JSON.parse(String(to.requests[0]?.body))).toMatchObject({
    event_type: 'job.dead_letter',
    aggregate_type: 'job',
    aggregate_id: id,
    payload: { id, kind: 'doomed', attempts: 1, error: { message: 'no luck' } },
  });
});

test('WH-8: an ordered endpoint gets the events of an aggregate one after another, in order, also over failures', async () => {
  const scene = await webhookScene();
  const seen: string[] = [];
  let open = 0;
  let overlapped = false;
  const { url } = await receiver((request, response, nth) => {
    const { aggregate_id, payload } = JSON.parse(String(request.body));
    if (aggregate_id === 'A') {
      open += 1;
      overlapped ||= open > 1;
    }
    setTimeout(() => {
      if (aggregate_id === 'A') open -= 1;
      if (nth % 7 === 3) return void response.writeHead(500).end();
      seen.push(`${aggregate_id}${payload.n}`);
      ok(request, response, nth);
    }, 5);
  });
  await scene.endpoint({ url, ordered: true });
  for (let n = 0; n < 15; n += 1) for (const id of ['A', 'B']) await scene.emit('moved', id, { n });
  await scene.deliver();
  await drained(scene);
  const expected = Array.from({ length: 15 }, (_, n) => n);
  for (const id of ['A', 'B'])
    expect(seen.filter((entry) => entry.startsWith(id))).toEqual(expected.map((n) => `${id}${n}`));
  expect(overlapped).toBe(false);
});

test('WH-8: an aggregate with a very long name has a lane, too', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url, ordered: true });
  await scene.emit('a', 'x'.repeat(500));
  await scene.emit('a', 'y'.repeat(500));
  expect(await scene.rows('select distinct lane from tallyman.live_jobs')).toHaveLength(2);
});

test('WH-1: an endpoint gets what happens from its creation on, and from each time it is enabled', async () => {
  const scene = await webhookScene();
  await scene.events.emit({ ...event, aggregateId: 'before' });
  const { id } = await scene.endpoint({ url });
  await scene.events.emit({ ...event, aggregateId: 'first' });
  await scene.fanOut();
  await scene.webhooks.disable(id);
  await scene.events.emit({ ...event, aggregateId: 'while disabled' });
  await scene.webhooks.enable(id);
  await scene.events.emit({ ...event, aggregateId: 'second' });
  await scene.webhooks.enable(id);
  await scene.fanOut();
  const sent = await scene.rows<{ aggregate_id: string }>(
    `select v.aggregate_id from tallyman_webhooks.dispatches d join tallyman_events.events v on v.id = d.event_id
      order by v.id`,
  );
  expect(sent.map(({ aggregate_id }) => aggregate_id)).toEqual(['first', 'second']);
});

test('WH-1: an event that commits late is delivered, too, and a follower that dies loses none', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url });
  const late = await scene.tallyman.database.pool.connect();
  await late.query('begin');
  await late.query(`select tallyman_events.emit('a', 't', 'late')`);
  await scene.events.emit({ ...event, aggregateId: 'soon' });
  const follower = webhookFollower(scene.tallyman.database);
  await follower.turn();
  await late.query('commit');
  late.release();
  // The jobs of a batch that was not committed are not there.
  await expect(
    scene.tallyman.database.transaction(async (tx) => {
      await tx.query(`select tallyman_webhooks.fan_out(0, tallyman_events.horizon())`);
      throw new Error('died');
    }),
  ).rejects.toThrow('died');
  await scene.fanOut();
  const sent = await scene.rows<{ aggregate_id: string }>(
    `select v.aggregate_id from tallyman_webhooks.dispatches d join tallyman_events.events v on v.id = d.event_id
      order by v.id`,
  );
  expect(sent.map(({ aggregate_id }) => aggregate_id)).toEqual(['late', 'soon']);
});
