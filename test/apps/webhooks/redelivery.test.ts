import { expect, test } from 'vitest';
import { purgeEventsKind, purgeEventsSchedule } from '../../../src/events/purge.ts';
import { drained, until } from '../../support/engine.ts';
import { ok, type Reply, receiver, status } from './support/receiver.ts';
import { hurry, webhookScene } from './support/scene.ts';

test('WH-9: a ping goes to its endpoint alone, whatever it subscribes to, signed as everything is', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const other = await receiver();
  const { id } = await scene.endpoint({ url: to.url, eventTypes: ['pallet.*'] });
  await scene.endpoint({ url: other.url });
  await scene.deliver();
  const { deliveryId, eventId } = await scene.webhooks.ping(id);
  await drained(scene);
  expect(other.requests).toEqual([]);
  expect(to.requests[0]?.headers).toMatchObject({
    'x-bpc-event-type': 'webhook.ping',
    'x-bpc-delivery-id': deliveryId,
    'webhook-id': eventId,
    'webhook-signature': expect.stringMatching(/^v1,/),
  });
  expect((await scene.webhooks.attempts({ deliveryId })).items).toMatchObject([
    { eventType: 'webhook.ping', status: 'SUCCEEDED' },
  ]);
  await expect(scene.webhooks.ping('999')).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await scene.webhooks.disable(id);
  await expect(scene.webhooks.ping(id)).rejects.toMatchObject({ code: 'BAD_STATE' });
});

test('WH-9: a redelivery is a new delivery of the same event', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  await scene.endpoint({ url: to.url });
  const eventId = await scene.emit('a');
  await scene.deliver();
  await drained(scene);
  const first = to.requests[0]?.headers['x-bpc-delivery-id'] ?? '';
  const again = await scene.webhooks.redeliver(first);
  await drained(scene);
  expect(again.eventId).toBe(eventId);
  expect(to.requests.map(({ headers }) => headers['webhook-id'])).toEqual([eventId, eventId]);
  expect(to.requests.map(({ headers }) => headers['x-bpc-delivery-id'])).toEqual([first, again.deliveryId]);
  expect(String(to.requests[1]?.body)).toBe(String(to.requests[0]?.body));
  await expect(scene.webhooks.redeliver('00000000-0000-4000-8000-000000000000')).rejects.toMatchObject({
    code: 'NOT_FOUND',
  });
});

test('WH-9: a range: what failed and what was missed, or everything, with progress; not what is on its way', async () => {
  const scene = await webhookScene();
  let reply: Reply = ok;
  const to = await receiver((...args) => reply(...args));
  const { id } = await scene.endpoint({ url: to.url, maxAttempts: 1, eventTypes: ['a.*'] });
  const sent = async (): Promise<string[]> =>
    to.requests.splice(0).map(({ headers }) => headers['webhook-id'] ?? '');
  const worker = await scene.deliver();
  await scene.emit('a.fine');
  await drained(scene);
  reply = status(500);
  const failed = await scene.emit('a.failed');
  await until(
    'it failed',
    async () => (await scene.rows('select 1 from tallyman.dead_letters')).length === 1,
  );
  await scene.webhooks.disable(id);
  const missed = await scene.emit('a.missed');
  await scene.emit('b.not-subscribed');
  await expect(scene.webhooks.redeliverRange({ endpointId: id, from: new Date(0) })).rejects.toMatchObject({
    code: 'BAD_STATE',
  });
  await scene.webhooks.enable(id);
  await worker.stop();
  await scene.emit('a.under-way');
  await sent();
  reply = ok;
  const progress: [number, number][] = [];
  const range = {
    endpointId: id,
    from: new Date(Date.now() - 3_600_000),
    to: new Date(Date.now() + 3_600_000),
  };
  expect(
    await scene.webhooks.redeliverRange({
      ...range,
      onProgress: (done, total) => progress.push([done, total]),
    }),
  ).toBe(2);
  expect(progress).toEqual([[2, 2]]);
  await scene.deliver({ perEndpoint: 1 });
  await drained(scene);
  expect(new Set(await sent())).toEqual(new Set([failed, missed, expect.any(String)]));
  expect(await scene.webhooks.redeliverRange(range)).toBe(0);
  expect(await scene.webhooks.redeliverRange({ ...range, onlyFailed: false })).toBe(4);
  await drained(scene);
  expect(await sent()).toHaveLength(4);
  const early = { ...range, to: new Date(Date.now() - 3_500_000) };
  expect(await scene.webhooks.redeliverRange({ ...early, onlyFailed: false })).toBe(0);
});

test('WH-4: a dead delivery that is redriven goes on under its delivery id, and its attempts count on', async () => {
  const scene = await webhookScene();
  let reply: Reply = status(500);
  const to = await receiver((...args) => reply(...args));
  await scene.endpoint({ url: to.url, maxAttempts: 2 });
  await scene.emit('a');
  await scene.deliver();
  await until('it is buried', async () => {
    await hurry(scene);
    return (await scene.rows('select 1 from tallyman.dead_letters')).length === 1;
  });
  reply = ok;
  expect(await scene.tallyman.deadLetters.redriveAll({ kind: 'webhook.deliver' })).toBe(1);
  await drained(scene);
  const { items } = await scene.webhooks.attempts();
  expect(items.map(({ attempt, status }) => [attempt, status])).toEqual([
    [3, 'SUCCEEDED'],
    [2, 'FAILED'],
    [1, 'FAILED'],
  ]);
  expect(new Set(items.map(({ deliveryId }) => deliveryId)).size).toBe(1);
});

test('WH-5: attempts are listed newest first, by page, endpoint, event and outcome; purge forgets the old ones', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  const one = await scene.endpoint({ url: to.url });
  const two = await scene.endpoint({ url: to.url, eventTypes: ['b'] });
  const first = await scene.emit('a');
  await scene.emit('b');
  await scene.deliver();
  await drained(scene);
  const { webhooks } = scene;
  expect((await webhooks.attempts({ endpointId: one.id })).items).toHaveLength(2);
  expect((await webhooks.attempts({ endpointId: two.id })).items).toMatchObject([{ eventType: 'b' }]);
  expect((await webhooks.attempts({ eventId: first })).items).toHaveLength(1);
  expect((await webhooks.attempts({ status: 'FAILED' })).items).toEqual([]);
  const page = await webhooks.attempts({}, { limit: 2 });
  const rest = await webhooks.attempts({}, { limit: 2, cursor: page.nextCursor ?? '' });
  const ids = [...page.items, ...rest.items].map(({ id }) => Number(id));
  expect(ids).toEqual([...ids].sort((a, b) => b - a));
  expect([ids.length, rest.nextCursor]).toEqual([3, null]);
  await scene.rows(
    `update tallyman_events.events set created_at = now() - interval '2 days' where id = any (tallyman_events.ids_of($1))`,
    [first],
  );
  expect(await scene.events.purge({ keepMs: 86_400_000 })).toBe(1);
  expect((await webhooks.attempts()).items.map(({ eventType }) => eventType)).toEqual(['b', 'b']);
});

test('WH-5: the schedule of purging deletes events with what is known about their deliveries', async () => {
  const scene = await webhookScene();
  const to = await receiver();
  await scene.endpoint({ url: to.url });
  await scene.emit('a');
  await scene.deliver();
  await drained(scene);
  await scene.work({ kinds: [purgeEventsKind(scene.tallyman.database, 0)] });
  await scene.tallyman.schedules.upsert(purgeEventsSchedule);
  await scene.rows(`update tallyman.schedules set next_run_at = now()`);
  await scene.tallyman.schedules.runDue();
  await until('it is forgotten', async () => {
    return (await scene.rows('select 1 from tallyman_webhooks.webhook_deliveries')).length === 0;
  });
});
