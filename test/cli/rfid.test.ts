import { expect, test } from 'vitest';
import { putDevice, putLocation } from '../../src/apps/iot/places.ts';
import { TagReadProcessor } from '../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../src/apps/rfid/reference/cached-devices.ts';
import { Database } from '../../src/engine/database/database.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { scratch, start } from './support.ts';

test('RFID-6: rfid baskets show tells where a basket is, and its way there', async () => {
  const { url, drop } = await emptyDatabase();
  const cwd = await scratch();
  const cli = (...args: string[]) =>
    start('src/cli/main.ts', args, { cwd, env: { DATABASE_URL: url } }).ended;
  expect(await cli('migrate')).toMatchObject({ code: 0 });
  const database = await Database.connect({ url });
  try {
    const tenantId = 'default';
    for (const place of ['dock 1', 'dock 2']) {
      const { id: locationId } = await putLocation(database, tenantId, place);
      await putDevice(database, { tenantId, serial: place.replace(' ', '-'), locationId });
    }
    const processor = new TagReadProcessor({ database, devices: new CachedDevices({ database }) });
    const read = { epc: '3314257BF40C0E4000000190', processorType: 'MQTT', tenantId } as const;
    await processor.processTagReads([
      { ...read, deviceId: 'dock-1', eventTimestamp: '2026-03-01T09:30:00Z' },
      { ...read, deviceId: 'dock-2', eventTimestamp: '2026-03-01T10:30:00Z' },
    ]);
  } finally {
    await database.close();
  }
  const { code, stdout } = await cli('rfid', 'baskets', 'show', '3314257bf40c0e4000000190');
  expect(code).toBe(0);
  expect(stdout).toContain('urn:epc:id:grai:0614141.12345.400');
  expect(stdout).toMatch(/is at +dock 2/);
  expect(stdout).toMatch(/dock 1 → dock 2 +\(dock-2\)\n.*first seen at dock 1 +\(dock-1\)/);
  const json = JSON.parse(
    (await cli('rfid', 'baskets', 'show', '3314257BF40C0E4000000190', '--json')).stdout,
  );
  expect(json.movements).toHaveLength(2);
  expect(await cli('rfid', 'baskets', 'show', '3314257BF40C0E4000000191')).toMatchObject({ code: 3 });
  await drop();
});
