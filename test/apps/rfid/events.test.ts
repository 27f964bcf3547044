import { describe, expect, test } from 'vitest';
import { putDevice } from '../../../src/apps/iot/places.ts';
import { rfidEventTypes } from '../../../src/apps/rfid/events.ts';
import { reconcile } from '../../../src/apps/rfid/shipments/camera-reads.ts';
import { planShipments } from '../../../src/apps/rfid/shipments/plan.ts';
import { type DomainEvent, readEvents } from '../../../src/events/read.ts';
import { type Plant, plant, read, tag, tenantId, time } from './support.ts';

/** All events so far; each is as the catalogue says. */
async function told({ tallyman }: Plant): Promise<readonly DomainEvent[]> {
  const { events } = await readEvents(tallyman.database, '0', {}, 1000);
  for (const { type, aggregateType, payload } of events) {
    const declared = rfidEventTypes.find((known) => known.type === type);
    expect(declared?.aggregateType).toBe(aggregateType);
    declared?.schema.parse(payload);
  }
  return events;
}

const brief = (events: readonly DomainEvent[]) =>
  events.map(({ type, aggregateId }) => `${type} ${aggregateId}`);

async function yard(): Promise<Plant> {
  const bundle = await plant(['A', 'B', 'R']);
  const { database } = bundle.tallyman;
  await putDevice(database, { tenantId, serial: 'camera', locationId: bundle.at.A ?? null, role: 'camera' });
  await putDevice(database, { tenantId, serial: 'R', locationId: bundle.at.R ?? null, role: 'return-door' });
  return bundle;
}

const plan = ({ tallyman }: Plant, shipment: string, ...oblpns: string[]) =>
  tallyman.database.transaction((tx) =>
    planShipments(
      tx,
      tenantId,
      oblpns.map((oblpn) => ({ oblpn, shipment })),
    ),
  );

const see = ({ tallyman }: Plant, oblpn: string, seconds: number) =>
  tallyman.database.transaction((tx) =>
    reconcile(tx, tenantId, { deviceId: 'camera', oblpn, eventTimestamp: time(seconds) }),
  );

describe('RFID-16 events of baskets', () => {
  test('a new basket and each movement are told once, in their order, with the transaction that saves them', async () => {
    const bundle = await plant();
    const reads = [read('A', 0), read('A', 1), read('B', 2), read('B', 3, { epc: tag(2) })];
    await bundle.processor.processTagReads(reads);
    await bundle.processor.processTagReads(reads);
    const events = await told(bundle);
    const ofOne = events.filter(({ aggregateId }) => aggregateId === tag(1));
    expect(ofOne.map(({ type }) => type)).toEqual(['rfid.basket.created', 'rfid.movement', 'rfid.movement']);
    expect(ofOne[2]).toMatchObject({
      payload: {
        from_location_id: bundle.at.A,
        to_location_id: bundle.at.B,
        device_id: 'B',
        epc_hex: tag(1),
      },
      occurredAt: new Date(time(2)),
      tenantId,
    });
    const [kept] = await bundle.rows<{ id: string }>(
      'select id from rfid.movements where from_location_id is not null',
    );
    expect(ofOne[2]?.payload).toMatchObject({ movement_id: kept?.id });
    expect(events).toHaveLength(5);
  });

  test('a basket that stays at the return door is returned once; when it has been away, again', async () => {
    const bundle = await yard();
    await bundle.processor.processTagReads([read('A', 0)]);
    for (const seconds of [10, 11, 12]) await bundle.processor.processTagReads([read('R', seconds)]);
    await bundle.processor.processTagReads([read('A', 1000)]);
    await bundle.processor.processTagReads([read('R', 2000)]);
    const returns = (await told(bundle)).filter(({ type }) => type === 'rfid.basket.returned');
    expect(returns.map(({ occurredAt }) => occurredAt)).toEqual([new Date(time(10)), new Date(time(2000))]);
  });
});

describe('RFID-16 events of shipments', () => {
  test('planned, loading, shipped and closed, each once', async () => {
    const bundle = await yard();
    await plan(bundle, 'S1', 'P1', 'P2');
    await plan(bundle, 'S1', 'P1', 'P2');
    await bundle.processor.processTagReads([read('A', 0), read('A', 20, { epc: tag(2) })]);
    await see(bundle, 'P1', 1);
    await see(bundle, 'P2', 19);
    await bundle.processor.processTagReads([read('R', 100)]);
    expect(brief(await told(bundle))).not.toContain('rfid.shipment.closed S1');
    await bundle.processor.processTagReads([read('R', 101, { epc: tag(2) })]);
    await bundle.processor.processTagReads([read('R', 102, { epc: tag(2) })]);
    const steps = brief(await told(bundle)).filter((line) => line.startsWith('rfid.shipment'));
    expect(steps).toEqual([
      'rfid.shipment.planned S1',
      'rfid.shipment.loading S1',
      'rfid.shipment.shipped S1',
      'rfid.shipment.closed S1',
    ]);
  });

  test('a shipment whose last two baskets come back in two transactions at once is closed', async () => {
    const bundle = await yard();
    await plan(bundle, 'S1', 'P1', 'P2');
    await bundle.processor.processTagReads([read('A', 0), read('A', 20, { epc: tag(2) })]);
    await see(bundle, 'P1', 1);
    await see(bundle, 'P2', 19);
    const { processor, tallyman } = bundle;
    const first = await tallyman.database.pool.connect();
    await first.query('begin');
    await processor.processWithin(first, await processor.examine([read('R', 100)]));
    const second = processor.processTagReads([read('R', 101, { epc: tag(2) })]);
    const waits = async () =>
      (await bundle.rows(`select 1 from pg_locks where locktype = 'advisory' and not granted`)).length;
    await expect.poll(waits, { timeout: 20_000 }).toBe(1);
    await first.query('commit');
    first.release();
    await second;
    expect(brief(await told(bundle)).filter((line) => line === 'rfid.shipment.closed S1')).toHaveLength(1);
  });
});
