/** From the tables and rows of version 0.2: what it wrote is the history of new reads. */
import { cp, mkdir, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { iotComponent } from '../../../src/apps/iot/component.ts';
import { putDevice, putLocation } from '../../../src/apps/iot/places.ts';
import { rfidComponent } from '../../../src/apps/rfid/component.ts';
import { contentHash } from '../../../src/apps/rfid/content-hash.ts';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../../src/apps/rfid/reference/cached-devices.ts';
import type { Component } from '../../../src/engine/database/migrate.ts';
import { engineComponent, migrate } from '../../../src/engine/database/migrate.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { type Bundle, engine } from '../../support/engine.ts';
import { read, tag, tenantId, time } from './support.ts';

const files = ['0001_tables.sql', '0002_replay.sql', '0003_shipments.sql'];

/** The component as 0.2 had it, as far as reads need it. */
async function before(): Promise<Component> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-0.2-'));
  await mkdir(join(folder, 'functions'));
  for (const file of files) await cp(new URL(file, rfidComponent.folder), join(folder, file));
  const functions = new URL('previous_release.sql', rfidComponent.functions);
  await cp(functions, join(folder, 'functions', 'process.sql'));
  return {
    name: 'rfid',
    folder: pathToFileURL(`${folder}/`),
    functions: pathToFileURL(join(folder, 'functions/')),
  };
}

interface OldRead {
  readonly device: string;
  readonly location: string;
  readonly from: string | null;
  readonly seconds: number;
}

/** What a worker of 0.2 does with a read that moves basket 1. */
async function moveAs02({ rows }: Bundle, { device, location, from, seconds }: OldRead): Promise<void> {
  const [basket] = await rows<{ id: string }>('select id from rfid.take_baskets($1, $2, $3)', [
    [tenantId],
    [tag(1)],
    ['urn:epc:id:grai:0614141.12345.1'],
  ]);
  const at = time(seconds);
  const hash = contentHash({ deviceId: device, epcHex: tag(1), timestamp: at });
  await rows(
    `select rfid.record($1, $2, $3, $4, $5, $5, $6, $2, $4, $5, $6, '{1}', $3, $4, $5, $1, null, $7, '{MQTT}', $5, $2, '{1}',
                        null, $8, $6, $9, null, $8)`,
    [[tenantId], [basket?.id], [from], [location], [at], [device], [hash], [tag(1)], [from === null]],
  );
}

async function plantOf02(): Promise<
  Bundle & { at: Record<string, string>; upgrade(): Promise<TagReadProcessor> }
> {
  const bundle = await engine({ components: [eventsComponent, iotComponent, await before()] });
  const { database } = bundle.tallyman;
  const at: Record<string, string> = {};
  for (const name of ['A', 'B', 'C']) {
    const { id } = await putLocation(database, tenantId, name);
    await putDevice(database, { tenantId, serial: name, locationId: id });
    at[name] = id;
  }
  return {
    ...bundle,
    at,
    upgrade: async () => {
      await migrate(database, {
        components: [engineComponent, eventsComponent, iotComponent, rfidComponent],
      });
      return new TagReadProcessor({ database, devices: new CachedDevices({ database }) });
    },
  };
}

const books = ({ rows }: Bundle) =>
  rows(
    `select from_location_id as "from", to_location_id as "to", repeats from rfid.movements order by event_timestamp`,
  );

test('RFID-6: reads and movements of 0.2 are carried over, and late reads are put between them', async () => {
  const plant = await plantOf02();
  const { A = '', B = '', C = '' } = plant.at;
  await moveAs02(plant, { device: 'A', location: A, from: null, seconds: 0 });
  await moveAs02(plant, { device: 'B', location: B, from: A, seconds: 100 });
  const processor = await plant.upgrade();
  expect(await books(plant)).toEqual([
    { from: null, to: A, repeats: 0 },
    { from: A, to: B, repeats: 0 },
  ]);
  await processor.processTagReads([read('C', 50)]);
  expect(await books(plant)).toEqual([
    { from: null, to: A, repeats: 0 },
    { from: A, to: C, repeats: 0 },
    { from: C, to: B, repeats: 0 },
  ]);
  // A worker of 0.2 that is still running goes on as it did, and the new one after it.
  await moveAs02(plant, { device: 'A', location: A, from: B, seconds: 200 });
  await processor.processTagReads([read('B', 210), read('A', 220)]);
  expect(await books(plant)).toEqual([
    { from: null, to: A, repeats: 0 },
    { from: A, to: C, repeats: 0 },
    { from: C, to: B, repeats: 0 },
    { from: B, to: A, repeats: 1 },
    { from: A, to: B, repeats: 0 },
  ]);
});

test('RFID-6: where 0.2 has deleted old reads, late reads from before what is left are stale', async () => {
  const plant = await plantOf02();
  const { A = '', B = '' } = plant.at;
  await moveAs02(plant, { device: 'A', location: A, from: null, seconds: 0 });
  await moveAs02(plant, { device: 'B', location: B, from: A, seconds: 100 });
  await plant.rows('delete from rfid.tag_read_processings where event_timestamp = $1', [time(0)]);
  const processor = await plant.upgrade();
  expect((await processor.processTagReads([read('C', 50)]))[0]?.skipReason).toBe('stale');
  expect(await books(plant)).toHaveLength(2);
});
