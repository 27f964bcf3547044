import { describe, expect, onTestFinished, test } from 'vitest';
import { putDevice } from '../../../src/apps/iot/places.ts';
import { CachedDevices } from '../../../src/apps/rfid/reference/cached-devices.ts';
import { ChangeNotices } from '../../../src/apps/rfid/reference/change-notices.ts';
import { until } from '../../support/engine.ts';
import { plant, tenantId } from './support.ts';

const of = (deviceId: string) => [{ tenantId, deviceId }];

describe('reference data', () => {
  test('RFID-11: is kept until it expires', async () => {
    const { tallyman, at } = await plant();
    let now = 0;
    let loads = 0;
    const { database } = tallyman;
    const counting = {
      query: (text: string) => {
        loads += 1;
        return database.query(text);
      },
    };
    const devices = new CachedDevices({ database: counting as never, expiryMs: 1000, clock: () => now });
    const locationOf = async (serial: string) =>
      (await devices.lookup(of(serial)))(tenantId, serial)?.locationId;
    await Promise.all(Array.from({ length: 20 }, () => locationOf('A')));
    expect([await locationOf('A'), loads]).toEqual([at.A, 1]);
    await putDevice(database, { tenantId, serial: 'A', locationId: at.B ?? null });
    now = 999;
    expect([await locationOf('A'), loads]).toEqual([at.A, 1]);
    now = 1000;
    expect([await locationOf('A'), loads]).toEqual([at.B, 2]);
  });

  test('RFID-11: a device that is not known is looked for again, but not for every read', async () => {
    const { tallyman, at } = await plant();
    let now = 0;
    const devices = new CachedDevices({ database: tallyman.database, missMs: 100, clock: () => now });
    const isKnown = async () => (await devices.lookup(of('D')))(tenantId, 'D') !== undefined;
    expect(await isKnown()).toBe(false);
    await putDevice(tallyman.database, { tenantId, serial: 'D', locationId: at.A ?? null });
    expect(await isKnown()).toBe(false);
    now = 100;
    expect(await isKnown()).toBe(true);
  });

  test('RFID-11: is dropped at once on a change notice, also after the line was lost', async () => {
    const { tallyman, at } = await plant();
    const { database } = tallyman;
    const devices = new CachedDevices({ database, expiryMs: 3_600_000 });
    const notices = new ChangeNotices(database, () => devices.drop());
    await notices.start();
    onTestFinished(() => notices.stop());
    const locationOf = async () => (await devices.lookup(of('A')))('default', 'A')?.locationId;
    const moved = (to: string | undefined) =>
      until('the change is seen', async () => (await locationOf()) === to);

    expect(await locationOf()).toBe(at.A);
    await putDevice(database, { tenantId, serial: 'A', locationId: at.B ?? null });
    await moved(at.B);
    await database.query('update iot.devices set location_id = $1 where serial = $2', [at.C, 'A']);
    await moved(at.C);

    await database.query(
      // Until it is gone: it must not pass on the next notice any more.
      `select pg_terminate_backend(pid, 60000) from pg_stat_activity
        where application_name = 'tallyman reference data' and datname = current_database()`,
    );
    await putDevice(database, { tenantId, serial: 'A', locationId: at.A ?? null });
    await moved(at.A);
    await until('the line is back', () => notices.status().state === 'up');
  });

  test('a load that failed is not kept', async () => {
    const { tallyman } = await plant();
    const { database } = tallyman;
    let fails = true;
    const flaky = {
      query: (text: string) => (fails ? Promise.reject(new Error('away')) : database.query(text)),
    };
    const devices = new CachedDevices({ database: flaky as never });
    await expect(devices.lookup(of('A'))).rejects.toThrow('away');
    fails = false;
    expect((await devices.lookup(of('A')))(tenantId, 'A')).toBeDefined();
  });
});
