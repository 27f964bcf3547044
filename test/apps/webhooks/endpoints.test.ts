import { expect, test } from 'vitest';
import { longRetryDelays } from '../../../src/apps/webhooks/endpoints.ts';
import { webhookScene } from './support/scene.ts';

const url = 'http://127.0.0.1/hook';

test('WH-4: the defaults, and a longer schedule for who wants one', async () => {
  const { webhooks } = await webhookScene();
  const { endpoint } = await webhooks.add({ url });
  expect(endpoint).toMatchObject({
    url,
    tenantId: 'default',
    eventTypes: ['*'],
    ordered: false,
    timeoutMs: 30_000,
    maxAttempts: 5,
    retryDelays: null,
    failures: 0,
    openUntil: null,
  });
  const patient = await webhooks.add({ url, retryDelays: longRetryDelays });
  expect(patient.endpoint).toMatchObject({ maxAttempts: 8, retryDelays: longRetryDelays });
});

test('WH-9: update changes what is given and nothing else', async () => {
  const { webhooks } = await webhookScene();
  const { endpoint } = await webhooks.add({
    url,
    eventTypes: ['a'],
    retryDelays: [1, 2],
    description: 'ours',
  });
  const changed = await webhooks.update(endpoint.id, { ordered: true, timeoutMs: 500 });
  expect(changed).toEqual({ ...endpoint, ordered: true, timeoutMs: 500 });
  await expect(webhooks.update(endpoint.id, { url: 'ftp://x/' })).rejects.toThrow('its scheme is "ftp"');
  await expect(webhooks.update('999', {})).rejects.toMatchObject({ code: 'NOT_FOUND' });
});

test('WH-6: endpoints are listed by tenant; what is removed is gone with its secrets', async () => {
  const { webhooks, rows } = await webhookScene();
  const ours = await webhooks.add({ url });
  const theirs = await webhooks.add({ url, tenantId: 'acme' });
  expect((await webhooks.list()).items.map(({ id }) => id)).toEqual([theirs.endpoint.id, ours.endpoint.id]);
  expect((await webhooks.list({ tenantId: 'acme' })).items).toMatchObject([{ id: theirs.endpoint.id }]);
  await webhooks.remove(ours.endpoint.id);
  await expect(webhooks.remove(ours.endpoint.id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await expect(webhooks.rotate(ours.endpoint.id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  expect(await webhooks.get(ours.endpoint.id)).toBeUndefined();
  expect(await rows('select 1 from tallyman_webhooks.endpoint_secrets')).toHaveLength(1);
});

test.each([
  { given: { timeoutMs: 1 }, says: 'timeoutMs must be' },
  { given: { maxAttempts: 0 }, says: 'maxAttempts must be' },
  { given: { retryDelays: [] }, says: 'at least one entry' },
  { given: { retryDelays: [1.5] }, says: 'a retry delay' },
  { given: { eventTypes: [] }, says: 'at least one event type' },
  { given: { eventTypes: ['a*'] }, says: 'is not an event type' },
  { given: { url: 'https://10.0.0.1/' }, says: '10.0.0.1 is private' },
])('WH-4, WH-7: $given is refused with a reason', async ({ given, says }) => {
  const { webhooks } = await webhookScene();
  await expect(webhooks.add({ url, ...given })).rejects.toThrow(says);
  expect((await webhooks.list()).items).toEqual([]);
});
