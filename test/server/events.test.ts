import { expect, onTestFinished, test } from 'vitest';
import { webhookFollower } from '../../src/apps/webhooks/follower.ts';
import { emit } from '../../src/events/emit.ts';
import { until } from '../support/engine.ts';
import { server, type TestServer } from './support.ts';

const moved = (aggregate_id: string, more: object = {}) => ({
  event_type: 'pallet.moved',
  aggregate_type: 'pallet',
  aggregate_id,
  payload: { bay: 'B7' },
  ...more,
});

test('WH-11: the catalogue has every type with the schema of its payload; its first words are reserved', async () => {
  const test = await server();
  const ask = await test.as('operator');
  const { items } = (await ask('GET', '/v1/event-types')).body;
  const types = items.map(({ event_type }: { event_type: string }) => event_type);
  for (const type of [
    'job.dead_letter',
    'lane.blocked',
    'rfid.movement',
    'rfid.shipment.closed',
    'label.shown',
    'webhook.endpoint.disabled',
  ])
    expect(types).toContain(type);
  const movement = items.find(({ event_type }: { event_type: string }) => event_type === 'rfid.movement');
  expect(movement.payload_schema.properties).toHaveProperty('to_location_id');
  for (const event_type of ['rfid.movement', 'label.mine', 'job', 'webhook.ping'])
    expect(await ask('POST', '/v1/events', moved('P-1', { event_type }))).toMatchObject({
      status: 400,
      body: { error: { code: 'BAD_OPTION' } },
    });
});

test('WH-10: events are read by a cursor, filtered, and only those of the own tenant', async () => {
  const test = await server();
  const [a, b] = [await test.as('operator', 'a'), await test.as('operator', 'b')];
  for (const id of ['P-1', 'P-2', 'P-3']) await a('POST', '/v1/events', moved(id));
  await b('POST', '/v1/events', moved('P-9'));
  const first = (await a('GET', '/v1/events?limit=2')).body;
  expect(first.items.map(({ aggregate_id }: { aggregate_id: string }) => aggregate_id)).toEqual([
    'P-1',
    'P-2',
  ]);
  expect(first.items[0]).toMatchObject({
    event_id: expect.stringMatching(/^evt_\d+$/),
    payload: { bay: 'B7' },
  });
  const second = (await a('GET', `/v1/events?after=${first.next_cursor}`)).body;
  expect(second.items.map(({ aggregate_id }: { aggregate_id: string }) => aggregate_id)).toEqual(['P-3']);
  expect((await a('GET', `/v1/events?after=${second.next_cursor}`)).body.items).toEqual([]);
  expect(
    (await a('GET', '/v1/events?type=pallet.*&aggregate_type=pallet&aggregate_id=P-2')).body.items,
  ).toHaveLength(1);
  expect((await b('GET', '/v1/events')).body.items).toHaveLength(1);
  expect((await a('GET', '/v1/events?after=x')).status).toBe(400);
});

test('WH-10: one event is read by its id, ours or the emitter’s, and only by its own tenant', async () => {
  const test = await server();
  const [a, b] = [await test.as('operator', 'a'), await test.as('operator', 'b')];
  const { event_id: ours } = (await a('POST', '/v1/events', moved('P-1'))).body;
  await a('POST', '/v1/events', moved('P-2', { event_id: 'move:1' }));
  await b('POST', '/v1/events', moved('P-3', { event_id: 'move:1' }));
  expect(await a('GET', `/v1/events/${ours}`)).toMatchObject({
    status: 200,
    body: { event_id: ours, event_type: 'pallet.moved', aggregate_id: 'P-1', payload: { bay: 'B7' } },
  });
  expect((await a('GET', '/v1/events/move:1')).body).toMatchObject({ aggregate_id: 'P-2' });
  expect((await b('GET', '/v1/events/move:1')).body).toMatchObject({ aggregate_id: 'P-3' });
  const [{ position }] = (await a('GET', '/v1/events?aggregate_id=P-2')).body.items;
  for (const [ask, id] of [
    [b, ours],
    [a, 'evt_999999'],
    // The position of an event that has an id of its own is not its id.
    [a, `evt_${position}`],
    [a, 'nothing'],
  ] as const)
    expect(await ask('GET', `/v1/events/${id}`)).toMatchObject({
      status: 404,
      body: { error: { code: 'NOT_FOUND' } },
    });
});

test('WH-10: endpoints and deliveries over the API: options, states, filters, pages, and nothing of other tenants', async () => {
  const test = await server();
  const [a, b] = [await test.as('operator', 'a'), await test.as('operator', 'b')];
  const made = await a('POST', '/v1/webhooks', {
    url: 'http://127.0.0.1:9/hook',
    secret: 'a secret of my own',
    filter: [{ path: 'bay', in: ['B7', 'B8'] }],
    headers: { Authorization: 'Bearer top-secret' },
    ed25519: true,
  });
  expect(made).toMatchObject({
    status: 201,
    body: {
      secret: 'a secret of my own',
      filter: [{ path: 'bay', in: ['B7', 'B8'] }],
      header_names: ['authorization'],
      secrets: [{ x_bpc_key: 'text' }],
      public_keys: [{ public_key: expect.stringMatching(/^whpk_/), expires_at: null }],
      disabled_by: null,
    },
  });
  const path = `/v1/webhooks/${made.body.id}`;
  const shown = JSON.stringify((await a('GET', path)).body);
  for (const hidden of ['top-secret', 'a secret of my own', 'whsk_']) expect(shown).not.toContain(hidden);
  const rotated = (await a('POST', `${path}/rotate`, { what: 'key' })).body;
  expect(rotated).toEqual({ public_key: expect.stringMatching(/^whpk_/) });
  expect((await a('POST', `${path}/rotate`, { secret: 'another of my own' })).body).toEqual({
    secret: 'another of my own',
  });
  expect((await a('POST', `${path}/rotate`, { what: 'key', secret: 'another' })).status).toBe(400);
  for (const wrong of [
    { filter: [{ path: 'bay', equals: 'B7', gt: 1 }] },
    { filter: [{ path: 'bay', matches: '.*' }] },
    { headers: { host: 'internal' } },
    { headers: { 'x-a': 'one\r\ntwo' } },
    { secret: 'short' },
  ])
    expect(await a('POST', '/v1/webhooks', { url: 'http://127.0.0.1:9/hook', ...wrong })).toMatchObject({
      status: 400,
    });
  const changed = await a('PATCH', path, { filter: null, headers: {}, ed25519: false });
  expect(changed.body).toMatchObject({ filter: [], header_names: [], public_keys: [] });
  await b('POST', '/v1/webhooks', { url: 'http://127.0.0.1:9/hook' });
  for (const id of ['P-1', 'P-2', 'P-3']) await a('POST', '/v1/events', moved(id));
  await b('POST', '/v1/events', moved('P-9'));
  await webhookFollower(test.tallyman.database).turn();
  const first = (await a('GET', '/v1/deliveries?limit=2&state=PENDING')).body;
  expect(first.items).toMatchObject([
    { state: 'PENDING', next_attempt_at: expect.any(String), attempts: 0, endpoint_id: made.body.id },
    { state: 'PENDING' },
  ]);
  const rest = (await a('GET', `/v1/deliveries?cursor=${first.next_cursor}`)).body;
  expect([rest.items.length, rest.next_cursor]).toEqual([1, null]);
  const [{ id, event_id: eventId }] = first.items;
  expect((await a('GET', `/v1/deliveries?event_id=${eventId}`)).body.items).toMatchObject([{ id }]);
  expect((await a('GET', '/v1/deliveries?state=DELIVERED')).body.items).toEqual([]);
  expect((await a('GET', '/v1/deliveries?to=2020-01-01T00:00:00Z')).body.items).toEqual([]);
  expect((await a('GET', '/v1/deliveries?state=LOST')).status).toBe(400);
  expect((await a('GET', `/v1/deliveries/${id}`)).body).toMatchObject({ id, state: 'PENDING' });
  expect((await a('GET', `/v1/deliveries/${id}/attempts`)).body).toEqual({ items: [], next_cursor: null });
  expect((await b('GET', '/v1/deliveries')).body.items).toHaveLength(1);
  for (const url of [`/v1/deliveries/${id}`, `/v1/deliveries/${id}/attempts`])
    expect((await b('GET', url)).status).toBe(404);
  const off = await a('PATCH', path, { enabled: false });
  expect(off.body).toMatchObject({ disabled_by: 'person' });
  expect((await a('GET', '/v1/events?type=webhook.endpoint.disabled')).body.items).toMatchObject([
    { aggregate_id: made.body.id, payload: { by: 'person' } },
  ]);
  expect((await a('PATCH', path, { enabled: true })).body).toMatchObject({ disabled_by: null });
});

/** A reader of the stream that can be cut off. `seen` are the aggregates of its events, `lastId` what it would reconnect with. */
async function reader({ url }: TestServer, key: string, lastEventId?: string) {
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const response = await fetch(`${url}/v1/stream`, {
    headers: { authorization: `Bearer ${key}`, ...(lastEventId && { 'last-event-id': lastEventId }) },
    signal: controller.signal,
  });
  const told: { seen: string[]; lastId: string | undefined; cut(): void } = {
    seen: [],
    lastId: lastEventId,
    cut: () => controller.abort(),
  };
  void (async () => {
    let rest = '';
    for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
      rest += Buffer.from(chunk).toString();
      for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
        const [, id, data] = /^id: (\d+)(?:\nevent: event\ndata: (.*))?$/.exec(rest.slice(0, end)) ?? [];
        if (id !== undefined) told.lastId = id;
        if (data !== undefined) told.seen.push(JSON.parse(data).aggregate_id);
        rest = rest.slice(end + 2);
      }
    }
  })().catch(() => {});
  return told;
}

test('WH-10: a reader of the stream that is cut off and reconnects misses nothing, not even a late commit', async () => {
  const test = await server();
  const ask = await test.as('operator', 'a');
  const { key } = await test.keys.create({ tenantId: 'a', name: 's', role: 'auditor' });
  const first = await reader(test, key);
  await until('it knows where it is', () => first.lastId !== undefined);
  await ask('POST', '/v1/events', moved('one'));
  await until('the event is told', () => first.seen.length === 1);
  const late = await test.tallyman.database.pool.connect();
  await late.query('begin');
  await emit(late, {
    type: 'pallet.moved',
    aggregateType: 'pallet',
    aggregateId: 'late',
    payload: {},
    tenantId: 'a',
  });
  await ask('POST', '/v1/events', moved('soon'));
  first.cut();
  await ask('POST', '/v1/events', moved('while away'));
  const second = await reader(test, key, first.lastId);
  await late.query('commit');
  late.release();
  await until('all is told', () => second.seen.length >= 3);
  expect([...first.seen, ...second.seen]).toEqual(['one', 'late', 'soon', 'while away']);
});
