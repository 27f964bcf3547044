import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { putDevice, putLocation } from '../../../src/apps/iot/places.ts';
import { storeTagReads } from '../../../src/apps/iot/tag-reads.ts';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../../src/apps/rfid/reference/cached-devices.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { scratch, start } from '../../cli/support.ts';
import { emptyDatabase } from '../../support/postgres.ts';

const tenantId = 'default';
const epc = '3314257BF40C0E4000000190';
const way = [
  { deviceId: 'dock-1', eventTimestamp: '2026-03-01T09:30:00Z' },
  { deviceId: 'dock-2', eventTimestamp: '2026-03-01T10:30:00Z' },
];

/** Two docks with a reader each. */
async function docks() {
  const { url, drop } = await emptyDatabase();
  const cwd = await scratch();
  const run =
    (more: Record<string, string> = {}) =>
    (...args: string[]) =>
      start('src/cli/main.ts', args, { cwd, env: { DATABASE_URL: url, ...more } }).ended;
  const cli = Object.assign(run(), { with: run });
  expect(await cli('migrate')).toMatchObject({ code: 0 });
  const database = await Database.connect({ url });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  for (const place of ['dock 1', 'dock 2']) {
    const { id: locationId } = await putLocation(database, tenantId, place);
    await putDevice(database, { tenantId, serial: place.replace(' ', '-'), locationId });
  }
  return { cli, database };
}

test('RFID-6: rfid baskets show tells where a basket is, and its way there', async () => {
  const { cli, database } = await docks();
  const processor = new TagReadProcessor({ database, devices: new CachedDevices({ database }) });
  await processor.processTagReads(way.map((read) => ({ ...read, epc, processorType: 'MQTT', tenantId })));
  const { code, stdout } = await cli('rfid', 'baskets', 'show', epc.toLowerCase());
  expect(code).toBe(0);
  expect(stdout).toContain('urn:epc:id:grai:0614141.12345.400');
  expect(stdout).toMatch(/is at +dock 2/);
  expect(stdout).toMatch(/dock 1 → dock 2 +\(dock-2\)\n.*first seen at dock 1 +\(dock-1\)/);
  const json = JSON.parse((await cli('rfid', 'baskets', 'show', epc, '--json')).stdout);
  expect(json.movements).toHaveLength(2);
  expect(await cli('rfid', 'baskets', 'show', '3314257BF40C0E4000000191')).toMatchObject({ code: 3 });
});

test('RFID-9: replay processes what iot holds, once, from the checkpoint or from where it is told', async () => {
  const { cli, database } = await docks();
  const raw = { epcHex: epc, tenantId, antenna: 1, rssi: -50, eventNumber: 1 };
  await database.transaction((tx) =>
    storeTagReads(
      tx,
      way.map((read) => ({ ...raw, ...read })),
    ),
  );
  expect(await cli('replay')).toMatchObject({
    code: 0,
    stdout: '2 reads: 2 processed, 0 had been before, 0 failed.\n',
  });
  expect(JSON.parse((await cli('replay', '--json')).stdout)).toMatchObject({ read: 0, processed: 0 });
  const again = await cli('replay', '--from', '2026-03-01T10:00:00Z', '--json');
  expect(JSON.parse(again.stdout)).toMatchObject({ read: 1, processed: 0, duplicates: 1 });
  expect((await cli('rfid', 'baskets', 'show', epc)).stdout).toMatch(/is at +dock 2/);
  expect(await cli('replay', '--from', 'yesterday')).toMatchObject({ code: 2 });
});

test('RFID-14: rfid import-plates fetches what is there; --dry-run only tells', async () => {
  const { cli, database } = await docks();
  const asked: (string | undefined)[] = [];
  const warehouse = createServer((request, response) => {
    asked.push(request.headers.authorization);
    response.end(JSON.stringify({ items: [{ oblpn: 'P1', shipment: 'S1' }], nextCursor: null }));
  });
  await new Promise<void>((resolve) => warehouse.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    warehouse.closeAllConnections();
    warehouse.close();
  });
  expect(await cli('rfid', 'import-plates')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('wms.url'),
  });
  const { port } = warehouse.address() as AddressInfo;
  const fetching = {
    TALLYMAN_WMS_URL: `http://127.0.0.1:${port}/plates`,
    TALLYMAN_WMS_AUTHORIZATION: 'Bearer t',
  };
  const lines = async () => (await database.query('select oblpn from rfid.shipment_lines')).rows;
  const preview = await cli.with(fetching)('rfid', 'import-plates', '--dry-run', '--json');
  expect(JSON.parse(preview.stdout)).toEqual({
    pages: 1,
    plates: 1,
    unknown: [{ oblpn: 'P1', shipment: 'S1' }],
  });
  expect(await lines()).toEqual([]);
  expect((await cli.with(fetching)('rfid', 'import-plates')).stdout).toBe('1 plate on 1 page, 1 new.\n');
  expect(await lines()).toEqual([{ oblpn: 'P1' }]);
  expect(asked).toEqual(['Bearer t', 'Bearer t']);
});
