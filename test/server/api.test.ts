import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { until } from '../support/engine.ts';
import { bury, registerKind, server } from './support.ts';

test('a job from enqueue to its end', async () => {
  const ran: unknown[] = [];
  const ship = defineKind({
    public: true,
    name: 'ship',
    schema: z.object({ order: z.number() }),
    handler: (payload, ctx) => ran.push([payload, ctx.lane, ctx.correlationId]),
  });
  const test = await server({ kinds: [ship] });
  const ask = await test.as('operator');
  await registerKind(test, 'ship');
  const made = await ask(
    'POST',
    '/v1/jobs',
    { kind: 'ship', payload: { order: 7 }, lane: 'dock-1', priority: 1, max_attempts: 3 },
    { 'x-correlation-id': 'order-7' },
  );
  expect(made).toMatchObject({ status: 201, body: { id: expect.stringMatching(/^\d+$/) } });
  expect(made.headers.get('x-correlation-id')).toBe('order-7');
  const path = `/v1/jobs/${made.body.id}`;
  expect((await ask('GET', path)).body).toMatchObject({
    status: 'QUEUED',
    kind: 'ship',
    lane: 'dock-1',
    priority: 1,
    max_attempts: 3,
    payload: { order: 7 },
    correlation_id: 'order-7',
  });
  const worker = test.tallyman.worker({ kinds: [ship] });
  await worker.start();
  await until('it ran', async () => (await ask('GET', path)).body.status === 'SUCCEEDED');
  expect(ran).toEqual([[{ order: 7 }, 'dock-1', 'order-7']]);
  expect((await ask('GET', '/v1/jobs/counts')).body).toMatchObject({ SUCCEEDED: 1, QUEUED: 0 });
});

test('payloads are checked against the kind where it is known, with the name of the field', async () => {
  const ship = defineKind({
    name: 'ship',
    public: true,
    schema: z.object({ order: z.number() }),
    handler: () => {},
  });
  const test = await server({ kinds: [ship] });
  const ask = await test.as('producer');
  await registerKind(test, 'ship');
  const answer = await ask('POST', '/v1/jobs', { kind: 'ship', payload: { order: 'seven' } });
  expect(answer).toMatchObject({ status: 400, body: { error: { code: 'VALIDATION_ERROR' } } });
  expect(answer.body.error.message).toMatch(/^body\.payload\.order: /);
  const batch = await ask('POST', '/v1/jobs/batch', {
    jobs: [
      { kind: 'ship', payload: { order: 1 } },
      { kind: 'ship', payload: {} },
    ],
  });
  expect(batch.status).toBe(400);
  expect(await test.rows('select 1 from tallyman.jobs')).toEqual([]);
  expect(await ask('POST', '/v1/jobs', { kind: 'sihp' })).toMatchObject({
    status: 422,
    body: { error: { code: 'UNKNOWN_KIND' } },
  });
});

test('lists come in pages of 50, at most 200, newest first, to the end', async () => {
  const test = await server();
  const ask = await test.as('operator');
  await registerKind(test, 'noop');
  const jobs = Array.from({ length: 230 }, (_, i) => ({
    kind: 'noop',
    payload: { i },
    queue: i % 2 ? 'odd' : 'even',
  }));
  const { body } = await ask('POST', '/v1/jobs/batch', { jobs });
  const newestFirst = [...body.ids].reverse();
  const first = (await ask('GET', '/v1/jobs')).body;
  expect(first.items).toHaveLength(50);
  expect(await ask('GET', '/v1/jobs?limit=201')).toMatchObject({ status: 400 });
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page: { items: { id: string }[]; next_cursor: string | null } = (
      await ask('GET', `/v1/jobs?limit=100${cursor ? `&cursor=${cursor}` : ''}`)
    ).body;
    seen.push(...page.items.map((item) => item.id));
    cursor = page.next_cursor;
  }
  expect(seen).toEqual(newestFirst);
  const odd = (await ask('GET', '/v1/jobs?queue=odd&status=QUEUED&limit=200')).body;
  expect(odd.items).toHaveLength(115);
  expect(odd.next_cursor).toBeNull();
});

test('cancel, retry, redrive, discard: done once, then a conflict or not found', async () => {
  const test = await server();
  const ask = await test.as('operator');
  await registerKind(test, 'noop');
  const enqueue = async () => (await ask('POST', '/v1/jobs', { kind: 'noop' })).body.id as string;
  const job = await enqueue();
  expect((await ask('POST', `/v1/jobs/${job}/cancel`, { reason: 'no longer wanted' })).status).toBe(204);
  expect((await ask('GET', `/v1/jobs/${job}`)).body).toMatchObject({
    status: 'CANCELLED',
    last_error: { message: 'no longer wanted' },
  });
  expect(await ask('POST', `/v1/jobs/${job}/cancel`)).toMatchObject({
    status: 409,
    body: { error: { code: 'BAD_STATE' } },
  });
  expect((await ask('POST', `/v1/jobs/${job}/retry`)).status).toBe(204);
  expect((await ask('GET', `/v1/jobs/${job}`)).body.status).toBe('QUEUED');

  const letters = [await enqueue(), await enqueue(), await enqueue(), await enqueue()];
  for (const id of letters) await bury(test, id);
  const [a, b] = letters;
  expect((await ask('GET', '/v1/dead-letters?search=IT DIED&error_code=X')).body.items).toHaveLength(4);
  expect((await ask('GET', `/v1/dead-letters/${a}`)).body).toMatchObject({
    id: a,
    last_error: { message: 'it died' },
  });
  expect((await ask('POST', `/v1/dead-letters/${a}/redrive`)).status).toBe(204);
  expect((await ask('POST', `/v1/dead-letters/${a}/redrive`)).status).toBe(404);
  expect((await ask('POST', `/v1/dead-letters/${b}/discard`)).status).toBe(204);
  expect((await ask('POST', `/v1/dead-letters/${b}/discard`)).status).toBe(404);
  expect((await ask('POST', '/v1/dead-letters/redrive', { kind: 'noop' })).body).toEqual({
    redriven: 2,
    more: false,
  });
  expect((await ask('POST', '/v1/dead-letters/discard', {})).body).toEqual({ discarded: 0, more: false });
});

test('lanes, queues and schedules', async () => {
  const test = await server();
  const ask = await test.as('operator');
  await test.rows(`select tallyman.register_kind('noop', lane_policy => 'block', is_public => true)`);
  const { id } = (await ask('POST', '/v1/jobs', { kind: 'noop', lane: 'door 7/ä' })).body;
  await bury(test, id);
  const [lane] = (await ask('GET', '/v1/lanes?state=blocked')).body.items;
  expect(lane).toMatchObject({ key: 'door 7/ä', policy: 'block', blocked_by: id });
  expect((await ask('POST', `/v1/lanes/${lane.id}/unblock`)).status).toBe(204);
  expect((await ask('GET', `/v1/lanes/${lane.id}`)).body.blocked_at).toBeNull();
  expect((await ask('POST', `/v1/lanes/${lane.id}/unblock`)).status).toBe(409);

  expect((await ask('PATCH', '/v1/queues/labels', { max_running: 4 })).status).toBe(204);
  expect((await ask('POST', '/v1/queues/labels/pause')).status).toBe(204);
  expect((await ask('GET', '/v1/queues/labels')).body).toMatchObject({
    max_running: 4,
    paused_at: expect.any(String),
  });
  expect((await ask('POST', '/v1/queues/labels/resume')).status).toBe(204);
  expect((await ask('POST', '/v1/queues/none/resume')).status).toBe(404);

  const put = await ask('PUT', '/v1/schedules/nightly', {
    cron: '0 3 * * *',
    timezone: 'Europe/Berlin',
    kind: 'noop',
  });
  expect(put).toMatchObject({ status: 200, body: { enabled: true, timezone: 'Europe/Berlin' } });
  expect((await ask('PUT', '/v1/schedules/bad', { cron: 'soon', kind: 'noop' })).body.error.code).toBe(
    'BAD_SCHEDULE',
  );
  expect((await ask('POST', '/v1/schedules/nightly/pause')).status).toBe(204);
  expect((await ask('POST', '/v1/schedules/nightly/pause')).status).toBe(409);
  expect((await ask('POST', '/v1/schedules/nightly/resume')).status).toBe(204);
  expect((await ask('DELETE', '/v1/schedules/nightly')).status).toBe(204);
  expect((await ask('DELETE', '/v1/schedules/nightly')).status).toBe(404);
});

test('WH-9, WH-1: webhooks and events over the API', async () => {
  const test = await server();
  const ask = await test.as('operator');
  const made = await ask('POST', '/v1/webhooks', {
    url: 'http://127.0.0.1:9/hook',
    event_types: ['pallet.*'],
  });
  expect(made).toMatchObject({
    status: 201,
    body: { secret: expect.stringMatching(/^whsec_/), ordered: false },
  });
  const path = `/v1/webhooks/${made.body.id}`;
  expect(JSON.stringify((await ask('GET', path)).body)).not.toContain('whsec_');
  expect((await ask('PATCH', path, { ordered: true, enabled: false })).body).toMatchObject({
    ordered: true,
    disabled_at: expect.any(String),
  });
  expect((await ask('PATCH', path, { enabled: true })).body.disabled_at).toBeNull();
  const event = {
    event_type: 'pallet.moved',
    aggregate_type: 'pallet',
    aggregate_id: 'P-1',
    event_id: 'e-1',
  };
  expect((await ask('POST', '/v1/events', event)).body).toEqual({
    event_id: 'e-1',
    existing: false,
  });
  expect((await ask('POST', '/v1/events', event)).body).toMatchObject({ existing: true });
  expect((await ask('POST', `${path}/rotate`, { keep_old_for_s: 60 })).body.secret).toMatch(/^whsec_/);
  const ping = await ask('POST', `${path}/ping`);
  expect(ping).toMatchObject({ status: 202, body: { delivery_id: expect.any(String) } });
  expect((await ask('GET', `${path}/deliveries?status=FAILED`)).body.items).toEqual([]);
  expect((await ask('POST', `/v1/deliveries/${ping.body.delivery_id}/redeliver`)).status).toBe(202);
  const range = { from: '2020-01-01T00:00:00Z', only_failed: false };
  expect((await ask('POST', `${path}/redeliver`, range)).body.redelivered).toBeGreaterThan(0);
  expect((await ask('POST', '/v1/webhooks', { url: 'gopher://x' })).status).toBe(400);
  expect((await ask('DELETE', path)).status).toBe(204);
  expect((await ask('GET', path)).status).toBe(404);
});

test('errors have one shape, and the OpenAPI document and its page are there', async () => {
  const { ask } = await server();
  const missing = await ask('GET', '/v1/nothing', undefined, { 'x-correlation-id': 'abc' });
  expect(missing).toMatchObject({
    status: 404,
    body: {
      error: { code: 'NOT_FOUND', correlation_id: 'abc', message: expect.stringContaining('/v1/nothing') },
    },
  });
  const { body } = await ask('GET', '/v1/openapi.json');
  expect(body.openapi).toBe('3.1.0');
  const operations = Object.values(body.paths as Record<string, Record<string, { operationId?: string }>>)
    .flatMap((methods) => Object.values(methods))
    .flatMap(({ operationId }) => operationId ?? []);
  expect(new Set(operations).size).toBe(operations.length);
  expect(operations).toContain('jobs.enqueue');
  expect(body.components.schemas.JobsEnqueueRequest.required).toEqual(['kind']);
  expect((await ask('GET', '/v1/docs/')).body).toContain('swagger');
});
