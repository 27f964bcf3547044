import { expect, test } from 'vitest';
import { storeCameraReads } from '../../../src/apps/iot/index.ts';
import {
  processRead,
  reconcileCameraRead,
  retryAsJobs,
  ShipmentLifecycle,
} from '../../../src/apps/rfid/index.ts';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { until } from '../../support/engine.ts';
import { plant, read, tag, tenantId, time } from './support.ts';

test('RFID-8: dead letters name the read that they are about, and can be found by it', async () => {
  const it = await plant();
  const { tallyman, devices } = it;
  const { database } = tallyman;
  const processor: TagReadProcessor = new TagReadProcessor({
    database,
    devices,
    onFailed: (tx, failures) => retryAsJobs(tallyman, retries)(tx, failures),
  });
  const retries = processRead(processor, 1);
  const cameras = reconcileCameraRead({ maxAttempts: 1 });
  const worker = await it.work({ kinds: [retries, cameras] });
  await processor.processTagReads([
    read('nobody', 1),
    read('nobody', 2, { processorType: 'Replay', zbTagReadId: '77' }),
  ]);
  const [id = ''] = await storeCameraReads(database, [
    { tenantId, deviceId: 'cam', oblpn: 'OB-1', eventTimestamp: time(3) },
  ]);
  await new ShipmentLifecycle({ tallyman, kind: cameras }).catchUp();
  await until(
    'all are dead letters',
    async () => (await it.rows('select 1 from tallyman.dead_letters')).length === 3,
  );
  await worker.stop();
  const named = async (entityType: string) =>
    (await tallyman.deadLetters.list({ entityType })).items.map(({ entityId }) => entityId).sort();
  expect(await named('tag_read')).toEqual(['77', `nobody|${tag(1)}|${time(1)}`]);
  expect(await named('camera_read')).toEqual([id]);
  expect(await named('job')).toEqual([]);
});
