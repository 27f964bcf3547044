import { expect, test } from 'vitest';
import { server } from '../../server/support.ts';
import { until } from '../../support/engine.ts';
import { type Reply, receiver } from './support/receiver.ts';
import { webhookScene } from './support/scene.ts';

test('SEC-5: a tenant has so many webhook endpoints and no more; another one has its own', async () => {
  const scene = await server({ config: { 'webhooks.maxEndpoints': 3 } });
  const [ours, theirs] = [await scene.as('operator', 'ours'), await scene.as('operator', 'theirs')];
  const add = (ask: typeof ours) => ask('POST', '/v1/webhooks', { url: 'http://127.0.0.1:9/' });
  const answers = [];
  for (let n = 0; n < 4; n += 1) answers.push(await add(ours));
  expect(answers.map(({ status }) => status)).toEqual([201, 201, 201, 429]);
  expect(answers[3]?.body.error).toMatchObject({
    code: 'TOO_MANY_ENDPOINTS',
    message: expect.stringContaining('webhooks.maxEndpoints'),
  });
  expect((await add(theirs)).status).toBe(201);
  expect((await ours('DELETE', `/v1/webhooks/${answers[0]?.body.id}`)).status).toBe(204);
  expect((await add(ours)).status).toBe(201);
});

test('SEC-5: a page of endpoints ends where their filters are large; no endpoint is left out', async () => {
  const { webhooks, rows } = await webhookScene();
  for (let n = 0; n < 5; n += 1) await webhooks.add({ url: 'http://127.0.0.1:9/' });
  // As an older release took them.
  await rows(
    `update tallyman_webhooks.endpoints e
        set filter = (select jsonb_agg(jsonb_build_object('path', '["a"]'::jsonb, 'op', 'equals', 'value', repeat('x', 1500000)))
                        where e.id > 1)`,
  );
  const pages: number[] = [];
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof webhooks.list>> = await webhooks.list(
      {},
      { limit: 200, ...(cursor !== null && { cursor }) },
    );
    pages.push(page.items.length);
    cursor = page.nextCursor;
  } while (cursor !== null);
  expect(pages).toEqual([3, 2]);
});

test('SEC-5: a tenant whose receivers are slow keeps no slots from another; its deliveries wait and lose no attempts', async () => {
  const scene = await webhookScene();
  let isSlow = true;
  const held: (() => void)[] = [];
  const slow: Reply = (_request, response) => {
    if (!isSlow) return void response.end();
    held.push(() => response.end());
  };
  const [hanging, quick] = [await receiver(slow), await receiver()];
  for (let n = 0; n < 10; n += 1)
    await scene.endpoint({ url: hanging.url, tenantId: 'greedy', timeoutMs: 60_000, maxAttempts: 1 });
  await scene.endpoint({ url: quick.url, tenantId: 'other' });
  const emit = (tenantId: string) =>
    scene.events.emit({ type: 'a', aggregateType: 'thing', aggregateId: '1', payload: {}, tenantId });
  for (let n = 0; n < 3; n += 1) await emit('greedy');
  await scene.fanOut();
  await scene.deliver({ perEndpoint: 2, slots: 8, worker: { concurrency: 8 } });
  await until('the greedy tenant has its share', () => held.length === 6);
  await emit('other');
  await until('the other tenant got its delivery', () => quick.requests.length === 1, 10_000);
  expect(held).toHaveLength(6);
  const putOff = await scene.rows<{ attempts: number }>(
    `select attempts from tallyman.jobs where tenant_id = 'greedy' and last_error ->> 'message' like 'put off%'`,
  );
  expect(putOff.length).toBeGreaterThan(0);
  expect(putOff.every(({ attempts }) => attempts === 0)).toBe(true);
  isSlow = false;
  for (const answer of held) answer();
  await until('all are delivered', () => hanging.requests.length >= 30, 30_000);
});
