import { describe, expect, test } from 'vitest';
import { putDevice } from '../../../src/apps/iot/places.ts';
import { rfidEventTypes } from '../../../src/apps/rfid/events.ts';
import { reconcile } from '../../../src/apps/rfid/shipments/camera-reads.ts';
import { planShipments } from '../../../src/apps/rfid/shipments/plan.ts';
import { type DomainEvent, readEvents } from '../../../src/events/read.ts';
import { until } from '../../support/engine.ts';
import { booksOf } from './books.ts';
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

describe('RFID-6, RFID-16: events of late reads', () => {
  test('what a late read inserts, changes and withdraws is told as corrected, with what was and what is', async () => {
    const bundle = await plant();
    const { processor, at } = bundle;
    await processor.processTagReads([read('A', 0), read('C', 10)]);
    const [basket, , moved] = await told(bundle);
    const toC = (moved?.payload as { movement_id?: string } | undefined)?.movement_id;
    await processor.processTagReads([read('B', 5)]);
    const corrected = (await told(bundle)).filter(({ type }) => type === 'rfid.movement.corrected');
    const facts = (from: string | undefined, to: string, seconds: number) => ({
      from_location_id: from ?? null,
      to_location_id: at[to],
      device_id: to,
      at: time(seconds),
    });
    expect(corrected.map(({ payload }) => payload)).toEqual([
      { movement_id: expect.any(String), epc_hex: tag(1), was: null, is: facts(at.A, 'B', 5) },
      { movement_id: toC, epc_hex: tag(1), was: facts(at.A, 'C', 10), is: facts(at.B, 'C', 10) },
    ]);
    expect(corrected.map(({ aggregateId, occurredAt }) => [aggregateId, occurredAt])).toEqual([
      [tag(1), new Date(time(5))],
      [tag(1), new Date(time(10))],
    ]);
    expect(basket?.type).toBe('rfid.basket.created');
    // Seen at C before: the movement there is withdrawn and made earlier.
    await processor.processTagReads([read('C', 7)]);
    expect((await told(bundle)).slice(-2).map(({ payload }) => payload)).toEqual([
      { movement_id: expect.any(String), epc_hex: tag(1), was: null, is: facts(at.B, 'C', 7) },
      { movement_id: toC, epc_hex: tag(1), was: facts(at.B, 'C', 10), is: null },
    ]);
    expect(brief(await told(bundle)).filter((line) => line.startsWith('rfid.basket.created'))).toHaveLength(
      1,
    );
  });

  test('a transaction that fails tells nothing and corrects nothing', async () => {
    const bundle = await plant();
    const { processor, tallyman } = bundle;
    await processor.processTagReads([read('A', 0), read('C', 10)]);
    const before = [await told(bundle), await booksOf(tallyman.database)];
    const failing = tallyman.database.transaction(async (tx) => {
      await processor.processWithin(tx, await processor.examine([read('B', 5)]));
      throw new Error('killed');
    });
    await expect(failing).rejects.toThrow('killed');
    expect([await told(bundle), await booksOf(tallyman.database)]).toEqual(before);
  });

  test('RFID-12: a late read that cuts a stay at the return door in two makes a second return; one within it makes none', async () => {
    const bundle = await yard();
    const { processor } = bundle;
    for (const seconds of [10, 2000]) await processor.processTagReads([read('R', seconds)]);
    await processor.processTagReads([read('R', 500)]);
    const returns = async () =>
      (await told(bundle))
        .filter(({ type }) => type === 'rfid.basket.returned')
        .map(({ occurredAt }) => occurredAt);
    expect(await returns()).toEqual([new Date(time(10))]);
    await processor.processTagReads([read('A', 1000)]);
    expect(await returns()).toEqual([new Date(time(10)), new Date(time(2000))]);
    await processor.processTagReads([read('R', 5)]);
    expect(await returns()).toHaveLength(2);
    expect(await bundle.rows('select returned_at from rfid.baskets')).toEqual([
      { returned_at: new Date(time(2000)) },
    ]);
  });

  test('RFID-12: a line is closed by the first return after its loading, in whatever order returns and plate arrive', async () => {
    for (const order of ['load, late, early', 'late, load, early', 'late, early, load']) {
      const bundle = await yard();
      await plan(bundle, 'S1', 'P1');
      await bundle.processor.processTagReads([read('A', 0)]);
      const steps: Record<string, () => Promise<unknown>> = {
        load: () => see(bundle, 'P1', 1),
        late: () => bundle.processor.processTagReads([read('R', 200)]),
        early: () => bundle.processor.processTagReads([read('R', 100)]),
      };
      for (const step of order.split(', ')) await steps[step]?.();
      expect(await bundle.rows('select closed_at from rfid.shipment_lines')).toEqual([
        { closed_at: new Date(time(100)) },
      ]);
      expect(brief(await told(bundle)).filter((line) => line === 'rfid.shipment.closed S1')).toHaveLength(1);
    }
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
      (
        await bundle.rows(
          `select 1 from pg_locks where locktype = 'advisory' and not granted
              and database = (select oid from pg_database where datname = current_database())`,
        )
      ).length;
    await until('the second waits', async () => (await waits()) === 1);
    await first.query('commit');
    first.release();
    await second;
    expect(brief(await told(bundle)).filter((line) => line === 'rfid.shipment.closed S1')).toHaveLength(1);
  });
});
