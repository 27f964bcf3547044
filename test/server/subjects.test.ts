import { expect, test } from 'vitest';
import { CachedDevices, TagReadProcessor } from '../../src/apps/rfid/index.ts';
import { registerDoors } from '../../src/apps/rfid/intake/doors.ts';
import { basketTag } from '../../src/simulate/tags.ts';
import { furnish, server } from './support.ts';

test('the time line of a basket: its movements, newest first, page by page', async () => {
  const { tallyman, as } = await server();
  const ask = await as('auditor');
  const { database } = tallyman;
  await registerDoors(database, ['A', 'B']);
  const processor = new TagReadProcessor({ database, devices: new CachedDevices({ database }) });
  const epc = basketTag(1);
  const read = (deviceId: string, minute: number) => ({
    epc,
    deviceId,
    eventTimestamp: `2026-03-01T09:${minute}:00Z`,
    processorType: 'MQTT' as const,
    tenantId: 'default',
  });
  await processor.processTagReads([read('A', 10), read('B', 20), read('A', 30)]);
  const first = (await ask('GET', `/v1/timeline/basket:${epc}?limit=2`)).body;
  expect(first.items).toMatchObject([
    {
      type: 'rfid.movement',
      at: '2026-03-01T09:30:00.000Z',
      text: 'moved from door of B to door of A, seen by A',
    },
    {
      type: 'rfid.movement',
      at: '2026-03-01T09:20:00.000Z',
      text: 'moved from door of A to door of B, seen by B',
    },
  ]);
  const second = (await ask('GET', `/v1/timeline/basket:${epc}?limit=2&before=${first.next_before}`)).body;
  expect(second).toMatchObject({ items: [{ text: 'first seen at door of A by A' }], next_before: null });
  expect((await ask('GET', `/v1/search?q=${epc.slice(0, 20).toLowerCase()}`)).body.items).toEqual([
    { type: 'basket', id: epc, title: `basket ${epc}` },
  ]);
  expect((await ask('GET', '/v1/timeline/nonsense')).body.error).toMatchObject({ code: 'BAD_OPTION' });
});

test('the time lines of a label, a shipment and a job', async () => {
  const scene = await server();
  const ask = await scene.as('admin');
  const ids = await furnish(scene, ask);
  const typesOf = async (subject: string): Promise<string[]> =>
    (await ask('GET', `/v1/timeline/${subject}`)).body.items.map(({ type }: { type: string }) => type);
  expect(await typesOf(`label:${ids.label}`)).toEqual(['label.wanted']);
  expect(await typesOf(`job:${ids.job}`)).toContain('job.created');
  expect(await typesOf('shipment:none')).toEqual([]);
  const { items } = (await ask('GET', `/v1/search?q=${ids.label}`)).body;
  expect(items).toMatchObject([{ type: 'label', id: ids.label }]);
});
