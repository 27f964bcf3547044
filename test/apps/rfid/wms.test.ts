import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { lockIds } from '../../../src/apps/rfid/lock-ids.ts';
import { httpWarehouse } from '../../../src/apps/rfid/wms/http.ts';
import { importPlates, PlateImport } from '../../../src/apps/rfid/wms/import.ts';
import type { WarehouseSystem } from '../../../src/apps/rfid/wms/warehouse-system.ts';
import { drained } from '../../support/engine.ts';
import { type Plant, plant, tenantId } from './support.ts';

const importOf = ({ tallyman }: Plant, system: WarehouseSystem): PlateImport =>
  new PlateImport({
    system,
    tenantId,
    checkpoints: tallyman.checkpoints,
    exclusively: (id, work, options) => tallyman.exclusively(id, work, options),
  });

/** Answers pages of two out of a list that may grow. */
function warehouse(plates: readonly { readonly oblpn: string; readonly shipment: string }[]) {
  const asked: (string | null)[] = [];
  const system: WarehouseSystem = {
    plates: async (cursor) => {
      asked.push(cursor);
      const start = Number(cursor ?? 0);
      const end = start + 2;
      return { plates: plates.slice(start, end), nextCursor: end <= plates.length ? String(end) : null };
    },
  };
  return { system, asked };
}

const lines = ({ rows }: Plant) =>
  rows(`select s.number as shipment, l.oblpn from rfid.shipment_lines l join rfid.shipments s on s.id = l.shipment_id
         order by l.oblpn`);

/** A server on the loopback that answers as it is told, and what it was asked. */
async function http(
  answer: (url: URL) => { status?: number; body: string; headers?: Record<string, string> } | undefined,
) {
  const asked: { readonly url: string; readonly authorization: string | undefined }[] = [];
  const server = createServer((request, response) => {
    asked.push({ url: request.url ?? '', authorization: request.headers.authorization });
    const told = answer(new URL(request.url ?? '', 'http://wms'));
    if (told === undefined) return;
    const { status = 200, body, headers = {} } = told;
    response.writeHead(status, headers).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/plates?site=7`, asked };
}

describe('WMS import', () => {
  test('RFID-14: pulls every page once, goes on at its cursor, and a page pulled twice changes nothing', async () => {
    const bundle = await plant();
    const plates = ['P1', 'P2', 'P3'].map((oblpn) => ({ oblpn, shipment: 'S1' }));
    const { system, asked } = warehouse(plates);
    expect(await importOf(bundle, system).run()).toEqual({ pages: 2, plates: 3, planned: 3 });
    plates.push({ oblpn: 'P4', shipment: 'S2' }, { oblpn: 'P5', shipment: 'S2' });
    expect(await importOf(bundle, system).run()).toEqual({ pages: 2, plates: 3, planned: 2 });
    expect(asked).toEqual([null, '2', '2', '4']);
    await bundle.rows('delete from tallyman.checkpoints');
    expect(await importOf(bundle, system).run()).toEqual({ pages: 3, plates: 5, planned: 0 });
    expect(await lines(bundle)).toEqual(plates);
  });

  test('RFID-14: a crash between page and cursor repeats nothing and skips nothing', async () => {
    const bundle = await plant();
    const plates = ['P1', 'P2', 'P3', 'P4', 'P5'].map((oblpn) => ({ oblpn, shipment: 'S1' }));
    const { system } = warehouse(plates);
    const { tallyman } = bundle;
    for (let crashAt = 1; crashAt <= 3; crashAt += 1) {
      let transactions = 0;
      const crashing = new PlateImport({
        system,
        tenantId,
        checkpoints: tallyman.checkpoints,
        exclusively: (id, work, options) =>
          tallyman.exclusively(
            id,
            (section) =>
              work({
                signal: section.signal,
                transaction: (inner) =>
                  section.transaction(async (tx) => {
                    const value = await inner(tx);
                    transactions += 1;
                    if (transactions === crashAt) throw new Error('crash');
                    return value;
                  }),
              }),
            options,
          ),
      });
      await bundle.rows('truncate rfid.shipments, rfid.shipment_lines, tallyman.checkpoints');
      await expect(crashing.run()).rejects.toThrow('crash');
      expect(await lines(bundle)).toEqual(plates.slice(0, 2 * (crashAt - 1)));
      await importOf(bundle, system).run();
      expect(await lines(bundle)).toEqual(plates);
    }
  });

  test('RFID-14: one instance at a time, under its lock; as a job it does not fail when another is at it', async () => {
    const bundle = await plant();
    const { system, asked } = warehouse([{ oblpn: 'P1', shipment: 'S1' }]);
    const plates = importOf(bundle, system);
    const kind = importPlates(plates);
    await bundle.work({ kinds: [kind], queues: ['rfid'] });
    await bundle.tallyman.exclusively(lockIds.oracle, async () => {
      expect(await plates.run()).toBeUndefined();
      await bundle.tallyman.enqueue(kind, {});
      await drained(bundle);
    });
    expect(asked).toEqual([]);
    await bundle.tallyman.enqueue(kind, {});
    await drained(bundle);
    expect(await lines(bundle)).toHaveLength(1);
  });

  test('RFID-14: over HTTP, with a cursor and credentials', async () => {
    const bundle = await plant();
    const { url, asked } = await http(({ searchParams }) => ({
      body: JSON.stringify(
        searchParams.get('cursor') === null
          ? { items: [{ oblpn: ' P1 ', shipment: 'S1', more: 1 }], nextCursor: 'a b&c' }
          : { items: [{ oblpn: 'P2', shipment: 'S1' }] },
      ),
    }));
    const system = httpWarehouse({ url, headers: { authorization: 'Bearer x' }, limit: 1 });
    expect(await importOf(bundle, system).run()).toEqual({ pages: 2, plates: 2, planned: 2 });
    expect(asked).toEqual([
      { url: '/plates?site=7&limit=1', authorization: 'Bearer x' },
      { url: '/plates?site=7&limit=1&cursor=a+b%26c', authorization: 'Bearer x' },
    ]);
    expect(await lines(bundle)).toEqual([
      { shipment: 'S1', oblpn: 'P1' },
      { shipment: 'S1', oblpn: 'P2' },
    ]);
  });

  test.each([
    ['an error', { status: 503, body: 'busy' }, /answered 503/],
    ['no JSON', { body: '<html>' }, /JSON/],
    ['a wrong shape', { body: '{"items": [{"oblpn": 7, "shipment": "S"}]}' }, /items\.0\.oblpn/],
    ['an empty plate', { body: '{"items": [{"oblpn": " ", "shipment": "S"}]}' }, /items\.0\.oblpn/],
    ['too much', { body: `{"items": [], "x": "${'x'.repeat(2000)}"}` }, /longer than 1000 bytes/],
    ['a redirect', { status: 302, body: '', headers: { location: 'http://127.0.0.1:1/' } }, /failed/],
  ])(
    'RFID-14: a warehouse system that answers %s is an error that says so; nothing is lost',
    async (_, answer, reason) => {
      const { url } = await http(() => answer);
      const failing = httpWarehouse({ url, maxBytes: 1000 }).plates(null, new AbortController().signal);
      await expect(failing).rejects.toMatchObject({
        code: 'WMS_FAILED',
        message: expect.stringMatching(reason),
      });
    },
  );

  test.each([
    [401, 'PermanentError'],
    [404, 'PermanentError'],
    [429, 'TallymanError'],
    [503, 'TallymanError'],
  ])('RFID-14: %s is asked again only where that can help', async (status, name) => {
    const { url } = await http(() => ({ status, body: '' }));
    const failing = httpWarehouse({ url }).plates(null, new AbortController().signal);
    await expect(failing).rejects.toMatchObject({ name, code: 'WMS_FAILED' });
  });

  test('RFID-14: one that does not answer is given up on', async () => {
    const { url } = await http(() => undefined);
    const system = httpWarehouse({ url, timeoutMs: 50 });
    await expect(system.plates(null, new AbortController().signal)).rejects.toMatchObject({
      name: 'TallymanError',
      code: 'WMS_FAILED',
      message: expect.stringContaining('no complete answer within 50 ms'),
    });
    expect(() => httpWarehouse({ url: 'ftp://wms' })).toThrow(/http/);
  });
});
