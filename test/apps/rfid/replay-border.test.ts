import { expect, onTestFinished, test } from 'vitest';
import { storeCameraReads } from '../../../src/apps/iot/camera-reads.ts';
import { iotComponent } from '../../../src/apps/iot/component.ts';
import { putDevice } from '../../../src/apps/iot/places.ts';
import { rfidComponent } from '../../../src/apps/rfid/component.ts';
import { processRead, retryAsJobs } from '../../../src/apps/rfid/failed-reads.ts';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../../src/apps/rfid/reference/cached-devices.ts';
import { reconcileCameraRead } from '../../../src/apps/rfid/shipments/camera-reads.ts';
import { ShipmentLifecycle } from '../../../src/apps/rfid/shipments/lifecycle.ts';
import { planShipments } from '../../../src/apps/rfid/shipments/plan.ts';
import { requireShipment } from '../../../src/apps/rfid/shipments/shipments.ts';
import { Tallyman } from '../../../src/engine/tallyman.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { collect, replayOf } from './replay-support.ts';
import { plant, read, tag, tenantId, time } from './support.ts';

test('RFID-9, RFID-12, RFID-13: replay, shipments and returns work under a role that may only read iot', async () => {
  const bundle = await plant(['A', 'R']);
  const { database } = bundle.tallyman;
  await putDevice(database, { tenantId, serial: 'R', locationId: bundle.at.R ?? null, role: 'return-door' });
  await putDevice(database, { tenantId, serial: 'camera', locationId: bundle.at.A ?? null, role: 'camera' });
  await collect(database, [read('A', 0), read('nobody', 1), read('R', 1000), read('A', 5, { epc: tag(2) })]);
  await storeCameraReads(database, [{ tenantId, deviceId: 'camera', oblpn: 'P1', eventTimestamp: time(1) }]);

  const role = `reader_${bundle.url.slice(-12)}`;
  await database.query(`
    create role ${role} login bypassrls noinherit password 'rfid';
    grant ${database.tenantRole} to ${role};
    grant usage on schema iot, rfid, tallyman to ${role};
    grant select on all tables in schema iot to ${role};
    grant select, insert, update, delete on all tables in schema rfid, tallyman to ${role};
    grant usage, update on all sequences in schema rfid, tallyman to ${role};
    grant usage on schema tallyman_events to ${role};
    grant insert on tallyman_events.events to ${role};
    grant select, usage on all sequences in schema tallyman_events to ${role};`);
  const address = new URL(bundle.url);
  address.username = role;
  address.password = 'rfid';
  const tallyman = await Tallyman.open({
    databaseUrl: address.toString(),
    components: [eventsComponent, iotComponent, rfidComponent],
  });
  onTestFinished(async () => {
    await tallyman.close();
    await database.query(`drop owned by ${role}; drop role ${role}`);
  });
  const devices = new CachedDevices({ database: tallyman.database });
  const kind = reconcileCameraRead();
  const processor: TagReadProcessor = new TagReadProcessor({
    database: tallyman.database,
    devices,
    onFailed: (tx, failures) => retryAsJobs(tallyman, processRead(processor))(tx, failures),
  });

  expect(await replayOf({ ...bundle, tallyman, processor, devices }).catchUp()).toEqual({
    read: 4,
    processed: 3,
    duplicates: 0,
    failed: 1,
  });
  await planShipments(tallyman.database, tenantId, [{ oblpn: 'P1', shipment: 'S1' }]);
  await new ShipmentLifecycle({ tallyman, kind }).catchUp();
  const worker = tallyman.worker({ kinds: [kind], queues: ['rfid'], pollIntervalMs: 50 });
  await worker.start();
  await expect
    .poll(async () => (await requireShipment(tallyman.database, tenantId, 'S1')).plates)
    .toMatchObject([{ oblpn: 'P1', epcHex: tag(1), closedAt: new Date(time(1000)) }]);
  await expect(tallyman.database.query('delete from iot.tag_reads')).rejects.toThrow(/permission denied/);
});
