import { Registry } from 'prom-client';
import { describe, expect, onTestFinished, test } from 'vitest';
import { iotComponent, putDevice, putLocation, storeTagReads } from '../../../../src/apps/iot/index.ts';
import { rfidComponent } from '../../../../src/apps/rfid/index.ts';
import { forgetOldest } from '../../../../src/apps/rfid/intake/forget.ts';
import {
  type IntakeOptions,
  PlantMetrics,
  type RunningIntake,
  registerDoors,
  startIntake,
  type UpkeepOptions,
} from '../../../../src/apps/rfid/intake/index.ts';
import { replayOf } from '../../../../src/apps/rfid/intake/replay.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { basketTag } from '../../../../src/simulate/tags.ts';
import { readExposition } from '../../../observability/exposition.ts';
import { type Bundle, engine, until } from '../../../support/engine.ts';

/** A plant without a broker. */
async function plant(): Promise<
  Bundle & { start(options?: Partial<IntakeOptions>): Promise<RunningIntake> }
> {
  const bundle = await engine({ components: [eventsComponent, iotComponent, rfidComponent] });
  await registerDoors(bundle.tallyman.database, ['dock-1']);
  return {
    ...bundle,
    start: async (options = {}) => {
      const intake = await startIntake({
        tallyman: bundle.tallyman,
        worker: { pollIntervalMs: 100 },
        ...options,
      });
      onTestFinished(() => intake.stop());
      return intake;
    },
  };
}

const collect = ({ tallyman }: Bundle, count: number): Promise<string[]> =>
  storeTagReads(
    tallyman.database,
    Array.from({ length: count }, (_, i) => ({
      tenantId: 'default',
      deviceId: 'dock-1',
      epcHex: basketTag(1),
      eventTimestamp: `2026-03-01T12:00:00.${String(i).padStart(6, '0')}Z`,
      antenna: null,
      rssi: null,
      eventNumber: null,
    })),
  );

const ids = async ({ rows }: Bundle, table: string): Promise<number[]> =>
  (await rows<{ id: string }>(`select id from ${table} order by id`)).map(({ id }) => Number(id));

const everySecond = '* * * * * *';

describe('what goes on by itself', () => {
  test('a schedule of the warehouse system goes when it is no longer configured, and moves with its tenant', async () => {
    const it = await plant();
    const system = { plates: async () => ({ plates: [], nextCursor: null }) };
    const cron = '0 0 1 1 *';
    const schedules = async () =>
      (await it.tallyman.schedules.list()).map(({ name, tenantId }) => `${name} of ${tenantId}`);
    const once = async (plates: UpkeepOptions['plates']) => (await it.start({ upkeep: { plates } })).stop();
    await once({ system, tenantId: 'default', cron });
    await it.tallyman.schedules.upsert({ name: 'mine', cron, kind: 'rfid.import-plates', payload: {} });
    expect(await schedules()).toEqual(['mine of default', 'rfid.import-plates of default']);
    await once({ system, tenantId: 'north', cron });
    expect(await schedules()).toEqual(['mine of default', 'rfid.import-plates of north']);
    await once(undefined);
    expect(await schedules()).toHaveLength(2);
    await once(null);
    expect(await schedules()).toEqual(['mine of default']);
  });

  test('RFID-11: replay hears of a device that was moved, while intake runs', async () => {
    const it = await plant();
    const { database } = it.tallyman;
    const intake = await it.start({ replayIntervalMs: 50 });
    const places = () =>
      it.rows<{ name: string }>(
        'select l.name from rfid.movements m join iot.locations l on l.id = m.to_location_id order by m.id',
      );
    await collect(it, 1);
    await until('it is replayed', async () => (await places()).length === 1);
    const { id } = await putLocation(database, 'default', 'elsewhere');
    await putDevice(database, { tenantId: 'default', serial: 'dock-1', locationId: id });
    // The notice comes on a line of its own: a read may be replayed before it. The cache alone would keep the place longer.
    let seconds = 0;
    await until(
      'it is replayed at its new place',
      async () => {
        seconds += 1;
        await storeTagReads(database, [
          {
            tenantId: 'default',
            deviceId: 'dock-1',
            epcHex: basketTag(1),
            eventTimestamp: new Date(Date.UTC(2026, 2, 1, 13, 0, seconds)).toISOString(),
            antenna: null,
            rssi: null,
            eventNumber: null,
          },
        ]);
        return (await places()).length === 2;
      },
      50_000,
    );
    expect((await places()).map(({ name }) => name)).toEqual(['door of dock-1', 'elsewhere']);
    await intake.stop();
  });

  test('RFID-9: reads that nobody processed are looked for from time to time, and counted', async () => {
    const it = await plant();
    const registry = new Registry();
    const intake = await it.start({ replayIntervalMs: 50, observer: new PlantMetrics(registry) });
    expect(intake.status().mqtt).toBeUndefined();
    await collect(it, 5);
    const processed = async (): Promise<number> => (await ids(it, 'rfid.tag_read_processings')).length;
    await until('they are processed', async () => (await processed()) === 5);
    await collect(it, 5);
    const sample = async (name: string, labels: object): Promise<number | undefined> =>
      readExposition(await registry.metrics())
        .get(name)
        ?.samples.find((each) => JSON.stringify(each.labels) === JSON.stringify(labels))?.value;
    const reads = (outcome: string) => sample('tallyman_reads_total', { path: 'replay', outcome });
    await until('the second lot is known', async () => (await reads('duplicate')) === 5);
    expect(await reads('processed')).toBe(5);
    await until(
      'it has looked again',
      async () => ((await sample('tallyman_replays_total', { outcome: 'done' })) ?? 0) > 1,
    );
    expect(await processed()).toBe(5);
  });

  test('RFID-14: outbound plates are fetched when the schedule says so', async () => {
    const it = await plant();
    const plates = [{ oblpn: 'P1', shipment: 'S1' }];
    await it.start({
      upkeep: {
        plates: {
          system: { plates: async () => ({ plates, nextCursor: null }) },
          tenantId: 'default',
          cron: everySecond,
        },
      },
    });
    const known = (): Promise<{ oblpn: string }[]> => it.rows('select oblpn from rfid.shipment_lines');
    await until('the plate is known', async () => (await known()).length === 1);
    expect((await it.tallyman.schedules.list()).map(({ name }) => name)).toEqual(['rfid.import-plates']);
  });

  test('RFID-3: old reads are forgotten, raw ones only when replay has been through them', async () => {
    const it = await plant();
    await collect(it, 4);
    await replayOf(it.tallyman).catchUp();
    await collect(it, 2);
    const old = `now() - interval '40 days'`;
    await it.rows(`update iot.tag_reads set received_at = ${old} where id <> 4`);
    await it.rows(`update rfid.tag_read_processings set processed_at = ${old} where id < 3`);
    const retention = { rawMs: 30 * 86_400_000, processedMs: 30 * 86_400_000 };
    await it.start({ upkeep: { retention } });
    const [schedule] = await it.tallyman.schedules.list();
    expect(schedule).toMatchObject({ name: 'rfid.forget-reads', cron: '23 * * * *' });
    await it.tallyman.schedules.upsert({
      name: 'rfid.forget-reads',
      kind: 'rfid.forget-reads',
      cron: everySecond,
      payload: {},
    });
    await until('it is done', async () => (await ids(it, 'rfid.tag_read_processings')).length === 2);
    // 4 is young, and 5 and 6 have not been replayed.
    expect(await ids(it, 'iot.tag_reads')).toEqual([4, 5, 6]);
    expect(await ids(it, 'rfid.tag_read_processings')).toEqual([3, 4]);
  });

  test('forgetting goes on bite by bite, and ends at the first row that is young enough', async () => {
    const it = await plant();
    await collect(it, 12_000);
    await it.rows(
      `update iot.tag_reads set received_at = now() - interval '2 days' where id <= 11000 or id > 11500`,
    );
    const raw = { table: 'iot.tag_reads', at: 'received_at' } as const;
    const keepMs = 86_400_000;
    expect(await forgetOldest(it.tallyman.database, raw, { keepMs, signal: AbortSignal.abort() })).toBe(0);
    expect(await forgetOldest(it.tallyman.database, raw, { keepMs, upTo: '10' })).toBe(10);
    expect(await forgetOldest(it.tallyman.database, raw, { keepMs })).toBe(11_490);
    expect((await ids(it, 'iot.tag_reads')).length).toBe(500);
  });
});
