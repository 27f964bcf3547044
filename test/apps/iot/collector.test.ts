import { describe, expect, test } from 'vitest';
import { storeCameraReads } from '../../../src/apps/iot/camera-reads.ts';
import { iotComponent } from '../../../src/apps/iot/component.ts';
import { listDevices, listLocations, putDevice, putLocation } from '../../../src/apps/iot/places.ts';
import { type RawTagRead, storeTagReads } from '../../../src/apps/iot/tag-reads.ts';
import { asTenant } from '../../../src/engine/database/tenant.ts';
import { engine } from '../../support/engine.ts';

const iot = () => engine({ components: [iotComponent] });
const read = (eventNumber: number): RawTagRead => ({
  tenantId: 't',
  deviceId: 'Tür "3", {null}',
  epcHex: 'AB',
  eventTimestamp: '2026-03-01T12:00:00.123456Z',
  antenna: 1,
  rssi: -52.5,
  eventNumber,
});

describe('iot', () => {
  test('stores reads in one statement and answers their ids in order', async () => {
    const { tallyman, rows } = await iot();
    const reads = Array.from({ length: 2000 }, (_, i) => read(i));
    const ids = await storeTagReads(tallyman.database, reads);
    expect(await storeTagReads(tallyman.database, [])).toEqual([]);
    const kept = await rows<{ id: string; event_number: string }>(
      'select id, event_number from iot.tag_reads order by id',
    );
    expect(kept).toEqual(ids.map((id, i) => ({ id, event_number: String(i) })));
    expect(
      await rows('select event_timestamp::text, device_id, rssi, antenna from iot.tag_reads limit 1'),
    ).toEqual([
      {
        event_timestamp: '2026-03-01 12:00:00.123456+00',
        device_id: 'Tür "3", {null}',
        rssi: -52.5,
        antenna: 1,
      },
    ]);
  });

  test('stores camera reads', async () => {
    const { tallyman, rows } = await iot();
    const seen = {
      tenantId: 't',
      deviceId: 'cam-1',
      oblpn: 'OB-1',
      eventTimestamp: '2026-03-01T12:00:00.000001Z',
    };
    expect(await storeCameraReads(tallyman.database, [seen, { ...seen, oblpn: 'OB-2' }])).toHaveLength(2);
    expect(await rows('select oblpn from iot.camera_reads order by id')).toEqual([
      { oblpn: 'OB-1' },
      { oblpn: 'OB-2' },
    ]);
  });

  test('devices and locations can be put twice, and belong to one tenant', async () => {
    const { tallyman } = await iot();
    const { database } = tallyman;
    const dock = await putLocation(database, 't', 'dock');
    expect(await putLocation(database, 't', 'dock')).toEqual(dock);
    const device = await putDevice(database, { tenantId: 't', serial: ' FX-1 ', role: 'dock-door' });
    expect(device).toMatchObject({ serial: 'FX-1', name: 'FX-1', locationId: null, role: 'dock-door' });
    const settings = { tenantId: 't', serial: 'FX-1', locationId: dock.id, role: 'return-door' } as const;
    expect(await putDevice(database, settings)).toEqual({
      ...device,
      locationId: dock.id,
      role: 'return-door',
    });
    await expect(putDevice(database, { ...settings, tenantId: 'other' })).rejects.toThrow(/no location/);
    await expect(putDevice(database, { ...settings, serial: '' })).rejects.toThrow(/not empty/);
    expect(await listLocations(database, 't')).toEqual([dock]);
    expect(await listDevices(database, 'other')).toEqual([]);
  });

  test('a tenant sees and writes its own rows only', async () => {
    const { tallyman } = await iot();
    const { database } = tallyman;
    await putLocation(database, 'other', 'theirs');
    await storeTagReads(database, [{ ...read(1), tenantId: 'other' }]);
    await asTenant(database, 't', async (scope) => {
      await putLocation(scope, 't', 'ours');
      expect(await listLocations(scope, 'other')).toEqual([]);
      expect((await scope.query('select 1 from iot.tag_reads')).rows).toEqual([]);
      await storeTagReads(scope, [read(1)]);
    });
    await expect(
      asTenant(database, 't', (scope) => storeTagReads(scope, [{ ...read(1), tenantId: 'other' }])),
    ).rejects.toThrow(/row-level security/);
  });
});
