import { expect, test } from 'vitest';
import { epc, furnish, server } from '../../server/support.ts';

test('RFID-5, RFID-6, RFID-15: places, devices, a basket and its way, over the API', async () => {
  const test = await server();
  const ask = await test.as('admin');
  await furnish(test, ask);
  const [dock] = (await ask('GET', '/v1/locations')).body.items;
  expect(dock.name).toBe('dock');
  expect((await ask('GET', '/v1/devices')).body.items).toEqual([
    expect.objectContaining({ serial: 'fx-1', name: 'fx-1', location_id: dock.id, role: 'dock-door' }),
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

test('devices: PUT replaces, PATCH changes what is given; a role is one of four', async () => {
  const test = await server();
  const ask = await test.as('operator');
  const { body: dock } = await ask('POST', '/v1/locations', { name: 'dock' });
  const settings = { name: 'the first', location_id: dock.id, role: 'dock-door' };
  expect((await ask('PUT', '/v1/devices/fx-1', settings)).body).toMatchObject(settings);
  const changed = await ask('PATCH', '/v1/devices/fx-1', { role: 'return-door' });
  expect(changed).toMatchObject({ status: 200, body: { ...settings, role: 'return-door' } });
  expect((await ask('PATCH', '/v1/devices/fx-1', { location_id: null })).body).toMatchObject({
    name: 'the first',
    location_id: null,
    role: 'return-door',
  });
  expect((await ask('PATCH', '/v1/devices/fx-1', {})).body.name).toBe('the first');
  expect((await ask('PATCH', '/v1/devices/none', { name: 'x' })).status).toBe(404);
  expect((await ask('PATCH', '/v1/devices/fx-1', { location_id: '999' })).status).toBe(404);
  expect(await ask('PUT', '/v1/devices/fx-1', { role: 'toaster' })).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining('dock-door') } },
  });
  // Left out, it gets its default.
  expect((await ask('PUT', '/v1/devices/fx-1', {})).body).toMatchObject({ name: 'fx-1', role: 'reader' });
  expect((await ask('GET', '/v1/devices/fx-1')).body).toMatchObject({ serial: 'fx-1', last_seen_at: null });
  expect((await ask('GET', '/v1/devices?role=camera')).body).toEqual({
    items: [],
    next_cursor: null,
    unregistered: [],
  });
});

test('RFID-15: a place has an SGLN; what is no SGLN is refused', async () => {
  const test = await server();
  const ask = await test.as('operator');
  const { body: dock } = await ask('POST', '/v1/locations', { name: 'dock' });
  expect(dock.sgln).toBeNull();
  const sgln = 'urn:epc:id:sgln:0614141.00777.0';
  expect((await ask('PATCH', `/v1/locations/${dock.id}`, { sgln })).body).toEqual({ ...dock, sgln });
  expect((await ask('POST', '/v1/locations', { name: 'dock' })).body.sgln).toBe(sgln);
  expect((await ask('GET', '/v1/locations/dock')).body).toEqual({ ...dock, sgln });
  for (const wrong of ['0614141.00777.0', 'urn:epc:id:sgln:0614141.0077.0', 'urn:epc:id:gln:1'])
    expect(await ask('PATCH', `/v1/locations/${dock.id}`, { sgln: wrong })).toMatchObject({
      status: 400,
      body: { error: { message: expect.stringContaining('is no SGLN') } },
    });
  expect((await ask('PATCH', `/v1/locations/${dock.id}`, { sgln: null, name: 'door' })).body).toEqual({
    id: dock.id,
    name: 'door',
    sgln: null,
  });
  await ask('POST', '/v1/locations', { name: 'other' });
  expect((await ask('PATCH', `/v1/locations/${dock.id}`, { name: 'other' })).status).toBe(409);
});

test('shipments can be planned over the API; a plate that is planned already changes nothing', async () => {
  const test = await server();
  const ask = await test.as('operator');
  const plan = { number: 'S-1', plates: ['OB-1', 'OB-2'] };
  expect((await ask('POST', '/v1/shipments', plan)).body).toEqual({ number: 'S-1', new_plates: 2 });
  expect((await ask('POST', '/v1/shipments', plan)).body.new_plates).toBe(0);
  expect((await ask('GET', '/v1/shipments/S-1')).body).toMatchObject({
    status: 'PLANNED',
    lines: 2,
    plates: [{ oblpn: 'OB-1', epc: null }, { oblpn: 'OB-2' }],
  });
});
