import { describe, expect, test } from 'vitest';
import type { Filter } from '../../../src/apps/webhooks/filter.ts';
import { drained, until } from '../../support/engine.ts';
import { ok, type Reply, receiver, status } from './support/receiver.ts';
import { type WebhookScene, webhookScene } from './support/scene.ts';

const url = 'http://127.0.0.1:9/';

describe('filters', () => {
  const payload = {
    to: { zone: 'dock-3', rack: null },
    weight: 20.5,
    fragile: true,
    items: [{ sku: 'X-1' }],
    'a.b': 'dotted',
    count: '20',
    list: [1, 2],
  };
  const cases: { filter: Filter; matches: boolean }[] = [
    { filter: [{ path: 'to.zone', equals: 'dock-3' }], matches: true },
    { filter: [{ path: 'to.zone', equals: 'dock-4' }], matches: false },
    { filter: [{ path: 'to.rack', equals: null }], matches: true },
    { filter: [{ path: 'to.nothing', equals: null }], matches: false },
    { filter: [{ path: 'fragile', equals: true }], matches: true },
    { filter: [{ path: 'fragile', equals: 'true' }], matches: false },
    { filter: [{ path: 'weight', equals: 20.5 }], matches: true },
    { filter: [{ path: 'weight', equals: '20.5' }], matches: false },
    { filter: [{ path: 'to', equals: 'dock-3' }], matches: false },
    { filter: [{ path: 'list', in: [1, 2] }], matches: false },
    { filter: [{ path: 'list', equals: 1 }], matches: false },
    { filter: [{ path: 'list.1', in: [null, true, 2.0] }], matches: true },
    { filter: [{ path: 'to.rack', in: ['null', null] }], matches: true },
    { filter: [{ path: 'weight', gt: 20.499999999999 }], matches: true },
    { filter: [{ path: 'to.zone', in: ['dock-1', 'dock-3'] }], matches: true },
    { filter: [{ path: 'weight', in: [1, 'dock-3', 20.5] }], matches: true },
    { filter: [{ path: 'to.zone', in: ['dock-1'] }], matches: false },
    { filter: [{ path: 'to.zone', prefix: 'dock-' }], matches: true },
    { filter: [{ path: 'to.zone', prefix: 'gate-' }], matches: false },
    { filter: [{ path: 'weight', prefix: '2' }], matches: false },
    { filter: [{ path: 'weight', gt: 20 }], matches: true },
    { filter: [{ path: 'weight', gt: 20.5 }], matches: false },
    { filter: [{ path: 'weight', gte: 20.5 }], matches: true },
    { filter: [{ path: 'weight', lt: 20.5 }], matches: false },
    { filter: [{ path: 'weight', lte: 20.5 }], matches: true },
    { filter: [{ path: 'count', gte: 1 }], matches: false },
    { filter: [{ path: 'to.rack', exists: true }], matches: true },
    { filter: [{ path: 'to.nothing', exists: false }], matches: true },
    { filter: [{ path: 'to.zone', exists: false }], matches: false },
    { filter: [{ path: 'items.0.sku', equals: 'X-1' }], matches: true },
    { filter: [{ path: ['a.b'], equals: 'dotted' }], matches: true },
    {
      filter: [
        { path: 'weight', gt: 20 },
        { path: 'to.zone', equals: 'dock-4' },
      ],
      matches: false,
    },
    { filter: [], matches: true },
  ];

  test('WH-10: each comparison holds for what it should, and for nothing else', async () => {
    const scene = await webhookScene();
    const ids: string[] = [];
    for (const { filter } of cases) ids.push((await scene.endpoint({ url, filter })).id);
    for (const [n, { filter }] of cases.entries())
      expect((await scene.webhooks.get(ids[n] ?? ''))?.filter).toEqual(filter);
    await scene.emit('a', 'A-1', payload);
    const sent = new Set((await scene.webhooks.deliveries()).items.map(({ endpointId }) => endpointId));
    expect(cases.map(({ filter }, n) => ({ filter, matches: sent.has(ids[n] ?? '') }))).toEqual(cases);
  });

  test('WH-10: a filter, a header or a secret that is refused leaves nothing behind', async () => {
    const scene = await webhookScene();
    for (const wrong of [
      { filter: [{ path: 'a', gt: 'x' as unknown as number }] },
      { headers: { host: 'internal' } },
      { secret: 'short' },
    ])
      await expect(scene.webhooks.add({ url, ...wrong })).rejects.toMatchObject({ code: 'BAD_OPTION' });
    expect((await scene.webhooks.list()).items).toEqual([]);
  });

  test('WH-10: a payload that a filter cannot read matches none, and holds up nobody', async () => {
    const scene = await webhookScene();
    const filtered = await scene.endpoint({ url, filter: [{ path: 'n', gt: 1 }] });
    const plain = await scene.endpoint({ url });
    await scene.rows(
      `select tallyman_events.emit('a', 't', '1', '{"n": 2, "x": "\\u0000"}'),
              tallyman_events.emit('a', 't', '1', '{"n": 1e999999}'),
              tallyman_events.emit('a', 't', '1', '{"n": 3}')`,
    );
    await scene.fanOut();
    expect((await scene.webhooks.deliveries({ endpointId: filtered.id })).items).toHaveLength(1);
    expect((await scene.webhooks.deliveries({ endpointId: plain.id })).items).toHaveLength(3);
    expect(await scene.rows('select 1 from tallyman_events.set_aside')).toEqual([]);
  });

  test('WH-10, SEC-5: long filters of many endpoints read a large payload once, not once for each condition', async () => {
    const scene = await webhookScene();
    const filter = Array.from({ length: 20 }, (_, n) => ({ path: `n${n}`, equals: n }));
    for (let n = 0; n < 20; n += 1) await scene.webhooks.add({ url, filter });
    const values = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`n${n}`, n]));
    const words = Array.from({ length: 90_000 }, (_, n) => `w${n}`);
    await scene.events.emit({
      type: 'a',
      aggregateType: 'thing',
      aggregateId: '1',
      payload: { ...values, words },
    });
    const [end] = await scene.rows<{ end: string }>('select tallyman_events.horizon() as end');
    const made = await scene.tallyman.database.transaction(
      async (tx) =>
        (await tx.query<{ made: number }>('select tallyman_webhooks.fan_out(0, $1) as made', [end?.end]))
          .rows[0]?.made,
      { statementMs: 2000 },
    );
    expect(made).toBe(20);
  });

  test('WH-10, WH-9: a range redelivers what the filter lets through; the filter can be changed and removed', async () => {
    const scene = await webhookScene();
    const { id } = await scene.endpoint({ url, filter: [{ path: 'n', gte: 2 }] });
    for (const n of [1, 2, 3]) await scene.emit('a', 'A-1', { n });
    const everything = { endpointId: id, from: new Date(Date.now() - 60_000), onlyFailed: false };
    expect(await scene.webhooks.redeliverRange(everything)).toBe(2);
    await scene.webhooks.update(id, { filter: null });
    expect(await scene.webhooks.redeliverRange({ ...everything, to: new Date(Date.now() + 1000) })).toBe(3);
  });
});

describe('headers', () => {
  test('WH-10: headers of the user’s own go with every delivery, lie sealed, and are not shown again', async () => {
    const scene = await webhookScene();
    const to = await receiver();
    const { id } = await scene.endpoint({
      url: to.url,
      headers: { Authorization: 'Bearer top-secret', 'X-Plant': 'north' },
    });
    await scene.deliver();
    await scene.emit('a');
    await until('it was delivered', () => to.requests.length === 1);
    expect(to.requests[0]?.headers).toMatchObject({
      authorization: 'Bearer top-secret',
      'x-plant': 'north',
      'content-type': 'application/json',
    });
    expect((await scene.webhooks.get(id))?.headerNames).toEqual(['authorization', 'x-plant']);
    await scene.webhooks.update(id, { description: 'still there' });
    await scene.emit('b');
    await until('it was delivered', () => to.requests.length === 2);
    expect(to.requests[1]?.headers.authorization).toBe('Bearer top-secret');
    await drained(scene);
    const stored = JSON.stringify([
      await scene.rows('select * from tallyman_webhooks.endpoints'),
      await scene.webhooks.get(id),
      await scene.webhooks.attempts(),
    ]);
    expect(stored).not.toContain('top-secret');
    await scene.webhooks.update(id, { headers: {} });
    await scene.emit('c');
    await until('it was delivered', () => to.requests.length === 3);
    expect(to.requests[2]?.headers).not.toHaveProperty('authorization');
  });
});

const states = async ({ webhooks }: WebhookScene, endpointId: string) =>
  (await webhooks.deliveries({ endpointId })).items.map(({ state }) => state);

describe('states', () => {
  test('WH-10: PENDING with the time of the next attempt, DELIVERED, FAILED; across endpoints, filtered and paged', async () => {
    const scene = await webhookScene();
    const good = await receiver();
    const bad = await receiver(status(500));
    const one = await scene.endpoint({ url: good.url });
    const two = await scene.endpoint({ url: bad.url, retryDelays: [3600], eventTypes: ['a'] });
    const three = await scene.endpoint({ url: bad.url, maxAttempts: 1, eventTypes: ['a', 'b'] });
    const { webhooks } = scene;
    const eventId = await scene.emit('a');
    expect(await states(scene, one.id)).toEqual(['PENDING']);
    const [waiting] = (await webhooks.deliveries({ endpointId: one.id })).items;
    expect(waiting).toMatchObject({ eventId, eventType: 'a', attempts: 0, lastAttemptAt: null });
    expect(waiting?.nextAttemptAt?.getTime()).toBeLessThanOrEqual(Date.now() + 1000);
    await scene.deliver();
    // An attempt is recorded before its job is put off or ends.
    await until('each has been tried and settled', async () => {
      const { items } = await webhooks.deliveries();
      const [putOff] = items.filter(({ endpointId }) => endpointId === two.id);
      return (
        items.every(({ attempts }) => attempts === 1) &&
        Number(putOff?.nextAttemptAt) > Date.now() + 3_000_000 &&
        (await states(scene, three.id))[0] === 'FAILED'
      );
    });
    expect((await webhooks.deliveries({ endpointId: one.id })).items).toMatchObject([
      { state: 'DELIVERED', nextAttemptAt: null, lastHttpStatus: 200, lastError: null, attempts: 1 },
    ]);
    const [retried] = (await webhooks.deliveries({ endpointId: two.id })).items;
    expect(retried).toMatchObject({ state: 'PENDING', attempts: 1, lastHttpStatus: 500 });
    expect(retried?.lastError).toContain('500');
    expect((await webhooks.deliveries({ endpointId: three.id })).items).toMatchObject([
      { state: 'FAILED', nextAttemptAt: null },
    ]);
    await scene.emit('b');
    await until('it is settled', async () =>
      (await states(scene, three.id)).every((state) => state === 'FAILED'),
    );
    await until('so is the other', async () => (await states(scene, one.id)).every((s) => s === 'DELIVERED'));
    const count = async (filter: Parameters<typeof webhooks.deliveries>[0]) =>
      (await webhooks.deliveries(filter)).items.length;
    expect(await count({})).toBe(5);
    expect(await count({ state: 'PENDING' })).toBe(1);
    expect(await count({ state: 'DELIVERED' })).toBe(2);
    expect(await count({ state: 'FAILED' })).toBe(2);
    expect(await count({ eventId })).toBe(3);
    expect(await count({ eventType: 'b' })).toBe(2);
    expect(await count({ tenantId: 'nobody' })).toBe(0);
    expect(await count({ from: new Date(Date.now() + 60_000) })).toBe(0);
    expect(await count({ to: new Date(Date.now() + 60_000), state: 'FAILED', endpointId: three.id })).toBe(2);
    const first = await webhooks.deliveries({}, { limit: 2 });
    const second = await webhooks.deliveries({}, { limit: 2, cursor: first.nextCursor ?? '' });
    const third = await webhooks.deliveries({}, { limit: 2, cursor: second.nextCursor ?? '' });
    const jobs = [...first.items, ...second.items, ...third.items].map(({ jobId }) => Number(jobId));
    expect(jobs).toEqual([...jobs].sort((a, b) => b - a));
    expect([new Set(jobs).size, third.nextCursor]).toEqual([5, null]);
    // A redriven dead letter waits again.
    expect(await scene.tallyman.deadLetters.redriveAll({ kind: 'webhook.deliver' })).toBe(2);
    await until('tried again', async () =>
      (await webhooks.deliveries({ endpointId: three.id })).items.every(({ attempts }) => attempts === 2),
    );
  });
});

describe('enable', () => {
  test.each([{ ordered: false }, { ordered: true }])(
    'WH-10: deliveries wait while a person has disabled the endpoint, and enable releases them (ordered: $ordered)',
    async ({ ordered }) => {
      const scene = await webhookScene();
      const to = await receiver();
      const { id } = await scene.endpoint({ url: to.url, ordered });
      for (const n of [1, 2, 3]) await scene.emit('a', 'A-1', { n });
      await scene.webhooks.disable(id, 'moves to another host');
      await scene.deliver();
      const waits = async () =>
        (await scene.webhooks.deliveries({ endpointId: id })).items.map(
          ({ nextAttemptAt }) => (nextAttemptAt?.getTime() ?? 0) > Date.now() + 60_000,
        );
      await until('they are put off', async () => (await waits()).every(Boolean));
      expect(await states(scene, id)).toEqual(['PENDING', 'PENDING', 'PENDING']);
      await scene.emit('while-disabled');
      await scene.webhooks.enable(id);
      await drained(scene);
      expect(await states(scene, id)).toEqual(['DELIVERED', 'DELIVERED', 'DELIVERED']);
      const order = to.requests.map(({ body }) => JSON.parse(String(body)).payload.n);
      if (ordered) expect(order).toEqual([1, 2, 3]);
      else expect(new Set(order)).toEqual(new Set([1, 2, 3]));
      // Waiting has cost no attempt.
      expect((await scene.webhooks.attempts()).items.map(({ attempt }) => attempt)).toEqual([1, 1, 1]);
    },
  );

  test('WH-10: enable ends the wait for the breaker and for retries at once', async () => {
    const scene = await webhookScene();
    let reply: Reply = status(503);
    const to = await receiver((...args) => reply(...args));
    const { id } = await scene.endpoint({ url: to.url, retryDelays: [3600], maxAttempts: 50 });
    await scene.deliver({ breaker: { failures: 2, openMs: 3_600_000, maxOpenMs: 3_600_000 } });
    for (let n = 0; n < 6; n += 1) await scene.emit('a', `A-${n}`, { n });
    await until('all wait', async () => {
      const { items } = await scene.webhooks.deliveries({ endpointId: id });
      return items.every(({ nextAttemptAt }) => (nextAttemptAt?.getTime() ?? 0) > Date.now() + 60_000);
    });
    reply = ok;
    await scene.webhooks.enable(id);
    await drained(scene);
    expect(new Set(await states(scene, id))).toEqual(new Set(['DELIVERED']));
  });

  test('WH-10: a delivery to a disabled endpoint ends as FAILED when it has waited too long', async () => {
    const scene = await webhookScene();
    const { id } = await scene.endpoint({ url });
    await scene.emit('a');
    await scene.webhooks.disable(id);
    await scene.deliver({ breaker: { giveUpMs: 0 } });
    await drained(scene);
    expect(await states(scene, id)).toEqual(['FAILED']);
    expect(await scene.rows(`select last_error ->> 'code' as code from tallyman.history`)).toEqual([
      { code: 'ENDPOINT_DISABLED' },
    ]);
  });
});

test('WH-10: webhook.endpoint.disabled, for a 410 and for a person, goes to the others and not to itself', async () => {
  const scene = await webhookScene();
  const gone = await receiver(status(410));
  const to = await receiver();
  const one = await scene.endpoint({ url: `${gone.url}?token=abc`, eventTypes: ['*'], description: 'yard' });
  const two = await scene.endpoint({ url: gone.url, eventTypes: ['webhook.*'] });
  await scene.endpoint({ url: to.url, eventTypes: ['webhook.endpoint.*'] });
  await scene.endpoint({ url: to.url, eventTypes: ['webhook.*'], tenantId: 'other' });
  await scene.deliver();
  await scene.emit('a');
  // The second answers 410 to the report about the first: a report about the second follows, and there it ends.
  await until('both are told', () => to.requests.length === 2);
  await drained(scene);
  await scene.fanOut();
  // This endpoint is not ordered: the second report may arrive first.
  const told = to.requests.map(({ body }) => JSON.parse(String(body)));
  expect(told.sort((a, b) => Number(a.aggregate_id) - Number(b.aggregate_id))).toMatchObject([
    {
      event_type: 'webhook.endpoint.disabled',
      aggregate_type: 'webhook_endpoint',
      aggregate_id: one.id,
      payload: {
        id: one.id,
        host: `127.0.0.1:${gone.port}`,
        description: 'yard',
        by: 'receiver',
        reason: 'the receiver answered 410 Gone',
      },
    },
    { aggregate_id: two.id, payload: { by: 'receiver' } },
  ]);
  for (const { body } of to.requests) expect(String(body)).not.toContain('token');
  expect(gone.requests).toHaveLength(2);
  // Enabled again before anybody looked: it does not get the report about itself.
  await scene.webhooks.enable(one.id);
  await scene.webhooks.disable(one.id, 'by hand');
  await scene.webhooks.disable(one.id, 'twice says nothing');
  await scene.webhooks.enable(one.id);
  await scene.fanOut();
  await until('it is told once more', () => to.requests.length === 3);
  await drained(scene);
  expect(JSON.parse(String(to.requests[2]?.body)).payload).toMatchObject({ by: 'person', reason: 'by hand' });
  expect(gone.requests).toHaveLength(2);
});
