import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { storeCameraReads } from '../../../src/apps/iot/camera-reads.ts';
import { putDevice } from '../../../src/apps/iot/places.ts';
import { reconcileCameraRead } from '../../../src/apps/rfid/shipments/camera-reads.ts';
import { ShipmentLifecycle } from '../../../src/apps/rfid/shipments/lifecycle.ts';
import { planShipments } from '../../../src/apps/rfid/shipments/plan.ts';
import { basketOf, statusAfter } from '../../../src/apps/rfid/shipments/reconcile.ts';
import { listShipments, requireShipment } from '../../../src/apps/rfid/shipments/shipments.ts';
import { drained, until } from '../../support/engine.ts';
import { collect, replayOf } from './replay-support.ts';
import { movements, type Plant, plant, read, tag, tenantId, time } from './support.ts';

/** A plant with a camera at door A, a return door R, and a worker for camera reads. */
async function yard(): Promise<
  Plant & { lifecycle: ShipmentLifecycle; see(oblpn: string, seconds: number): Promise<void> }
> {
  const bundle = await plant(['A', 'B', 'R']);
  const { database } = bundle.tallyman;
  await putDevice(database, { tenantId, serial: 'camera', locationId: bundle.at.A ?? null, role: 'camera' });
  await putDevice(database, { tenantId, serial: 'R', locationId: bundle.at.R ?? null, role: 'return-door' });
  const kind = reconcileCameraRead({ windowMs: 30_000, maxAttempts: 3, backoff: () => 1 });
  await bundle.work({ kinds: [kind], queues: ['rfid'] });
  const lifecycle = new ShipmentLifecycle({ tallyman: bundle.tallyman, kind, batch: 3 });
  const see = async (oblpn: string, seconds: number): Promise<void> => {
    await storeCameraReads(database, [
      { tenantId, deviceId: 'camera', oblpn, eventTimestamp: time(seconds) },
    ]);
  };
  return { ...bundle, lifecycle, see };
}

const plan = ({ tallyman }: Plant, shipment: string, ...oblpns: string[]) =>
  planShipments(
    tallyman.database,
    tenantId,
    oblpns.map((oblpn) => ({ oblpn, shipment })),
  );

const shipment = async ({ tallyman }: Plant, number = 'S1') => {
  const { status, plates } = await requireShipment(tallyman.database, tenantId, number);
  return {
    status,
    plates: Object.fromEntries(
      plates.map(({ oblpn, epcHex, closedAt }) => [oblpn, closedAt ? 'closed' : epcHex]),
    ),
  };
};

describe('shipment lifecycle', () => {
  test('RFID-13: PLANNED → LOADING → SHIPPED, each line with the basket read nearest at the same door', async () => {
    const bundle = await yard();
    await plan(bundle, 'S1', 'P1', 'P2');
    expect(await shipment(bundle)).toMatchObject({ status: 'PLANNED' });
    await bundle.processor.processTagReads([
      read('A', 0),
      read('B', 9, { epc: tag(3) }),
      read('A', 20, { epc: tag(2) }),
      read('A', 100, { epc: tag(4) }),
    ]);
    await bundle.see('P1', 9);
    expect(await bundle.lifecycle.catchUp()).toMatchObject({ processed: 1 });
    await drained(bundle);
    expect(await shipment(bundle)).toEqual({ status: 'LOADING', plates: { P1: tag(1), P2: null } });
    // The nearest is taken; the next one is not.
    await bundle.see('P2', 5);
    await bundle.lifecycle.catchUp();
    await drained(bundle);
    expect(await shipment(bundle)).toEqual({ status: 'SHIPPED', plates: { P1: tag(1), P2: tag(2) } });
    expect(await listShipments(bundle.tallyman.database, tenantId, { status: 'SHIPPED' })).toMatchObject({
      items: [{ number: 'S1', lines: 2, loadedLines: 2, closedLines: 0 }],
      nextCursor: null,
    });
  });

  test('RFID-13: the same plate seen ten times, and the same camera reads fed twice, load one basket', async () => {
    const bundle = await yard();
    await plan(bundle, 'S1', 'P1', 'P2');
    await bundle.processor.processTagReads([read('A', 0), read('A', 1, { epc: tag(2) })]);
    for (let i = 0; i < 10; i += 1) await bundle.see('P1', i / 10);
    await Promise.all([bundle.lifecycle.catchUp(), bundle.lifecycle.catchUp()]);
    await drained(bundle);
    await bundle.rows('delete from tallyman.checkpoints');
    expect(await bundle.lifecycle.catchUp()).toMatchObject({ read: 10, processed: 0, duplicates: 10 });
    expect(await shipment(bundle)).toEqual({ status: 'LOADING', plates: { P1: tag(1), P2: null } });
  });

  test('RFID-13: a missing OBLPN is tried again, then a dead letter; when it appears, a redrive mends it', async () => {
    const bundle = await yard();
    const { deadLetters } = bundle.tallyman;
    await bundle.processor.processTagReads([read('A', 0)]);
    await bundle.see('P1', 1);
    await bundle.lifecycle.catchUp();
    await until('it is a dead letter', async () => (await deadLetters.list()).items.length === 1);
    const [letter] = (await deadLetters.list()).items;
    expect(letter).toMatchObject({
      kind: 'rfid.reconcile-camera-read',
      attempts: 3,
      lastError: { code: 'OBLPN_MISSING' },
    });
    await plan(bundle, 'S1', 'P1');
    await deadLetters.redrive(letter?.id ?? '');
    await drained(bundle);
    expect(await shipment(bundle)).toEqual({ status: 'SHIPPED', plates: { P1: tag(1) } });
    expect((await deadLetters.list()).items).toEqual([]);
  });

  test('RFID-13: a basket whose reads are late, or outside the window, is waited for, bounded', async () => {
    const bundle = await yard();
    const { deadLetters } = bundle.tallyman;
    await plan(bundle, 'S1', 'P1');
    await bundle.processor.processTagReads([read('A', 40)]);
    await bundle.see('P1', 1);
    await bundle.lifecycle.catchUp();
    await until('it is a dead letter', async () => (await deadLetters.list()).items.length === 1);
    expect((await deadLetters.list()).items).toMatchObject([{ lastError: { code: 'BASKET_MISSING' } }]);
    await bundle.processor.processTagReads([read('A', 5, { epc: tag(2) })]);
    await deadLetters.redriveAll({});
    await drained(bundle);
    expect(await shipment(bundle)).toEqual({ status: 'SHIPPED', plates: { P1: tag(2) } });
  });

  test('RFID-13: plates seen at once never share a basket', async () => {
    const bundle = await yard();
    const plates = Array.from({ length: 20 }, (_, i) => `P${i}`);
    await plan(bundle, 'S1', ...plates);
    await bundle.processor.processTagReads(plates.map((_, i) => read('A', i / 10, { epc: tag(i) })));
    await storeCameraReads(
      bundle.tallyman.database,
      plates.map((oblpn) => ({ tenantId, deviceId: 'camera', oblpn, eventTimestamp: time(1) })),
    );
    await bundle.lifecycle.catchUp();
    await until('every plate has its basket, or is a dead letter', async () => {
      await bundle.tallyman.deadLetters.redriveAll({});
      return (await shipment(bundle)).status === 'SHIPPED';
    });
    const { plates: loaded } = await shipment(bundle);
    expect(new Set(Object.values(loaded)).size).toBe(20);
  });

  test('RFID-13, RFID-14: a plate that moves to another shipment leaves one that has all its others', async () => {
    const bundle = await yard();
    await plan(bundle, 'S1', 'P1', 'P2');
    await bundle.processor.processTagReads([read('A', 0)]);
    await bundle.see('P1', 1);
    await bundle.lifecycle.catchUp();
    await drained(bundle);
    await plan(bundle, 'S2', 'P1', 'P2');
    expect(await shipment(bundle)).toEqual({ status: 'SHIPPED', plates: { P1: tag(1) } });
    expect(await shipment(bundle, 'S2')).toEqual({ status: 'PLANNED', plates: { P2: null } });
  });

  test('RFID-13: a camera read that commits late with a lower id becomes a job', async () => {
    const bundle = await yard();
    const late = await bundle.tallyman.database.dedicated();
    onTestFinished(() => late.end());
    await late.query('begin');
    await storeCameraReads(late, [{ tenantId, deviceId: 'camera', oblpn: 'P1', eventTimestamp: time(1) }]);
    await bundle.see('P2', 1);
    expect(await bundle.lifecycle.catchUp()).toMatchObject({ processed: 1 });
    await late.query('commit');
    expect(await bundle.lifecycle.catchUp()).toMatchObject({ read: 2, processed: 1, duplicates: 1 });
  });

  test('RFID-13: what is decided: the nearest free basket, and never a step back', () => {
    const sightings = [
      { basketId: '10', at: 5, taken: false },
      { basketId: '9', at: 15, taken: false },
      { basketId: '3', at: 10, taken: true },
    ];
    expect(basketOf(10, sightings)).toBe('9');
    expect(basketOf(9, sightings)).toBe('10');
    expect(basketOf(9, [])).toBeUndefined();
    fc.assert(
      fc.property(
        fc.constantFrom('PLANNED', 'LOADING', 'SHIPPED'),
        fc.nat(5),
        fc.nat(5),
        (before, all, more) => {
          const order = ['PLANNED', 'LOADING', 'SHIPPED'];
          const after = statusAfter(before, { all: all + more, loaded: all });
          expect(order.indexOf(after)).toBeGreaterThanOrEqual(order.indexOf(before));
          if (all > 0 && more === 0) expect(after).toBe('SHIPPED');
          if (all === 0) expect(after).toBe(before);
        },
      ),
    );
  });
});

describe('return door', () => {
  const basket = async ({ rows }: Plant) =>
    (
      await rows<{ returned_at: Date | null; location_id: string }>(
        'select returned_at, location_id from rfid.baskets',
      )
    )[0];

  async function shipped(): Promise<Awaited<ReturnType<typeof yard>>> {
    const bundle = await yard();
    await plan(bundle, 'S1', 'P1');
    await bundle.processor.processTagReads([read('A', 0)]);
    await bundle.see('P1', 1);
    await bundle.lifecycle.catchUp();
    await drained(bundle);
    return bundle;
  }

  test('RFID-12: a read there marks the basket returned, moves it to the return location, closes its line', async () => {
    const bundle = await shipped();
    expect(await basket(bundle)).toMatchObject({ returned_at: null });
    await bundle.processor.processTagReads([read('R', 1000)]);
    expect(await basket(bundle)).toEqual({ returned_at: new Date(time(1000)), location_id: bundle.at.R });
    expect(await movements(bundle)).toEqual(['→A', 'A→R']);
    expect(await shipment(bundle)).toEqual({ status: 'SHIPPED', plates: { P1: 'closed' } });
    // Told again, by either path: nothing changes.
    await collect(bundle.tallyman.database, [read('R', 1000)]);
    await replayOf(bundle).catchUp();
    await bundle.processor.processTagReads([read('R', 1000), read('R', 1010)]);
    const { plates } = await requireShipment(bundle.tallyman.database, tenantId, 'S1');
    expect(plates).toMatchObject([{ closedAt: new Date(time(1000)) }]);
  });

  test('RFID-12: a basket that was returned can be shipped again', async () => {
    const bundle = await shipped();
    await bundle.processor.processTagReads([read('R', 1000)]);
    await plan(bundle, 'S2', 'P2');
    await bundle.processor.processTagReads([read('A', 2000)]);
    await bundle.see('P2', 2001);
    await bundle.lifecycle.catchUp();
    await drained(bundle);
    expect(await shipment(bundle, 'S2')).toEqual({ status: 'SHIPPED', plates: { P2: tag(1) } });
    expect(await basket(bundle)).toMatchObject({ returned_at: null });
    // A word of the first return that comes now says nothing about the second shipment.
    await bundle.processor.processTagReads([read('R', 999)]);
    expect(await shipment(bundle, 'S2')).toMatchObject({ plates: { P2: tag(1) } });
    expect(await basket(bundle)).toMatchObject({ returned_at: null, location_id: bundle.at.A });
  });

  test('RFID-12: a return that is told late closes the line, and leaves the basket where it has gone since', async () => {
    const bundle = await shipped();
    await bundle.processor.processTagReads([read('B', 1010)]);
    await bundle.processor.processTagReads([read('R', 1000)]);
    expect(await shipment(bundle)).toMatchObject({ plates: { P1: 'closed' } });
    expect(await basket(bundle)).toEqual({ returned_at: new Date(time(1000)), location_id: bundle.at.B });
  });

  test('RFID-12: a basket that is back before its plate is reconciled has its line closed at once', async () => {
    const bundle = await yard();
    await plan(bundle, 'S1', 'P1');
    await bundle.processor.processTagReads([read('A', 0)]);
    await bundle.processor.processTagReads([read('R', 1000)]);
    await bundle.see('P1', 1);
    await bundle.lifecycle.catchUp();
    await drained(bundle);
    expect(await shipment(bundle)).toEqual({ status: 'SHIPPED', plates: { P1: 'closed' } });
    expect(await basket(bundle)).toMatchObject({ returned_at: new Date(time(1000)) });
  });

  test('RFID-12: part of the transaction that processes the read: neither without the other', async () => {
    const bundle = await shipped();
    const batch = await bundle.processor.examine([read('R', 1000)]);
    const failed = bundle.tallyman.database.transaction(async (tx) => {
      await bundle.processor.processWithin(tx, batch);
      throw new Error('crash');
    });
    await expect(failed).rejects.toThrow('crash');
    expect(await basket(bundle)).toEqual({ returned_at: null, location_id: bundle.at.A });
    expect(await shipment(bundle)).toMatchObject({ plates: { P1: tag(1) } });
  });
});
