import { expect, onTestFinished, test } from 'vitest';
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
