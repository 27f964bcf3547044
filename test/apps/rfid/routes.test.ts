import { expect, test } from 'vitest';
import { epc, furnish, server } from '../../server/support.ts';

test('RFID-5, RFID-6, RFID-15: places, devices, a basket and its way, over the API', async () => {
  const test = await server();
  const ask = await test.as('admin');
  await furnish(test, ask);
  const [dock] = (await ask('GET', '/v1/locations')).body.items;
  expect(dock.name).toBe('dock');
  expect((await ask('GET', '/v1/devices')).body.items).toEqual([
    { id: expect.any(String), serial: 'fx-1', name: 'fx-1', location_id: dock.id, role: 'dock-door' },
  ]);
  expect((await ask('PUT', '/v1/devices/fx-2', { location_id: '999' })).status).toBe(404);
  const basket = {
    id: expect.any(String),
    epc,
    epc_uri: 'urn:epc:id:grai:0614141.12345.400',
    location_id: dock.id,
    last_device: 'fx-1',
    first_seen_at: '2026-03-01T09:30:00.000Z',
    last_seen_at: '2026-03-01T09:30:00.000Z',
  };
  expect((await ask('GET', `/v1/baskets/${epc.toLowerCase()}`)).body).toEqual(basket);
  expect((await ask('GET', `/v1/baskets?location_id=${dock.id}`)).body).toEqual({
    items: [basket],
    next_cursor: null,
  });
  expect((await ask('GET', '/v1/baskets?location_id=999')).body.items).toEqual([]);
  const way = (await ask('GET', `/v1/baskets/${epc}/movements`)).body;
  expect(way.items).toMatchObject([{ epc, from_location_id: null, to_location_id: dock.id, device: 'fx-1' }]);
  expect((await ask('GET', '/v1/movements?from=2026-03-01T00:00:00Z&to=2026-03-02T00:00:00Z')).body).toEqual(
    way,
  );
  expect((await ask('GET', '/v1/movements?from=2026-03-02T00:00:00Z')).body.items).toEqual([]);
  const epcis = (await ask('GET', '/v1/movements/epcis')).body;
  expect(epcis).toMatchObject({
    type: 'EPCISDocument',
    schemaVersion: '2.0',
    epcisBody: { eventList: [{ type: 'ObjectEvent', epcList: [basket.epc_uri], action: 'OBSERVE' }] },
  });
  const plate = { device: 'fx-1', oblpn: 'OB-1', at: '2026-03-01T09:30:05Z' };
  expect((await ask('POST', '/v1/camera-reads', { reads: [plate] })).body.ids).toHaveLength(1);
  expect((await ask('GET', '/v1/shipments')).body).toEqual({ items: [], next_cursor: null });
  expect((await ask('GET', '/v1/shipments/S-1')).status).toBe(404);
  expect((await ask('GET', '/v1/baskets/3314257BF40C0E4000000191')).status).toBe(404);
});
