import { describe, expect, test } from 'vitest';
import { deviceLockId, lockIds, stableHash } from '../../../src/apps/rfid/lock-ids.ts';
import type { ReplayProgress } from '../../../src/apps/rfid/replay/counts.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { collect, effects, replayOf, wandering } from './replay-support.ts';
import { movements, plant, read, tag, time } from './support.ts';

describe('replay', () => {
  test('RFID-9: does what the reads themselves would have done, each once, from the checkpoint on', async () => {
    const live = await plant();
    await live.processor.processTagReads(wandering(100));
    const bundle = await plant();
    const { tallyman } = bundle;
    const replay = replayOf(bundle);
    expect(await replay.catchUp()).toMatchObject({ read: 0 });
    await collect(tallyman.database, wandering(60));
    expect(await replay.catchUp()).toEqual({ read: 60, processed: 60, duplicates: 0, failed: 0 });
    await collect(tallyman.database, wandering(100).slice(60));
    expect(await replay.catchUp()).toMatchObject({ read: 40, processed: 40 });
    expect(await replay.catchUp()).toMatchObject({ read: 0 });
    expect(await effects(bundle)).toEqual(await effects(live));
    expect(await tallyman.checkpoints.load('rfid.replay/iot.tag_reads')).toMatchObject({
      position: { floor: '100', cursor: '100', awaits: null },
    });
  });

  test('RFID-9: a named stretch by id, by time, by device, with progress, whatever the checkpoint says', async () => {
    const bundle = await plant();
    const replay = replayOf(bundle, { batch: 4 });
    await collect(bundle.tallyman.database, wandering(60));
    const told: ReplayProgress[] = [];
    expect(
      await replay.replay({ from: '11', to: '20', onProgress: (progress) => told.push(progress) }),
    ).toMatchObject({ read: 10, processed: 10 });
    expect(told.map(({ read, total, position }) => ({ read, total, position }))).toEqual([
      { read: 4, total: 10, position: '14' },
      { read: 8, total: 10, position: '18' },
      { read: 10, total: 10, position: '20' },
    ]);
    expect(await replay.replay({ from: time(5), to: time(15) })).toMatchObject({
      read: 10,
      processed: 5,
      duplicates: 5,
    });
    expect(await replay.replay({ from: '1', device: 'B' })).toMatchObject({ read: 20, duplicates: 10 });
    expect(await bundle.tallyman.checkpoints.load('rfid.replay/iot.tag_reads')).toBeUndefined();
    expect(await replay.replay()).toMatchObject({ read: 60, processed: 35, duplicates: 25 });
    expect(await replay.replay()).toMatchObject({ read: 0 });
    expect(await replay.replay({ from: '1' })).toMatchObject({ read: 60, duplicates: 60 });
    await expect(replay.replay({ from: 'yesterday' })).rejects.toMatchObject({ code: 'BAD_OPTION' });
  });

  test('RFID-9: a read that fails is recorded once, does not stop the others, and can be replayed when it is mended', async () => {
    const bundle = await plant();
    const { tallyman, rows } = bundle;
    const replay = replayOf(bundle);
    await collect(tallyman.database, [
      read('A', 0),
      read('unknown', 1),
      read('B', 2, { epc: 'BEEF' }),
      read('B', 3),
    ]);
    expect(await replay.catchUp()).toEqual({ read: 4, processed: 2, duplicates: 0, failed: 2 });
    await tallyman.database.query(`delete from tallyman.checkpoints`);
    expect(await replay.catchUp()).toEqual({ read: 4, processed: 0, duplicates: 2, failed: 0 });
    expect(await rows('select zb_tag_read_id from rfid.tag_read_processings order by id')).toHaveLength(4);
    await tallyman.database.query(
      `insert into iot.devices (tenant_id, serial, name, location_id) values ('default', 'unknown', 'n', $1)`,
      [bundle.at.C],
    );
    bundle.devices.drop();
    expect(await replay.replay({ from: '2', to: '2' })).toMatchObject({ processed: 1 });
    expect(await movements(bundle)).toEqual(['→A', 'A→C', 'C→B']);
  });

  test("RFID-9: reads somebody else's database, with other names and types, under a role that may only read", async () => {
    const bundle = await plant();
    const { url, drop } = await emptyDatabase();
    const owner = await Database.connect({ url });
    const role = `reader_${Date.now()}`;
    const address = new URL(url);
    address.username = role;
    address.password = 'secret';
    let reader: Database | undefined;
    try {
      await owner.query(`
        create schema "Zebra Reads";
        create table "Zebra Reads"."tag""read" ("Id" integer primary key, "Reader" varchar(40), "EPC" text, "When" timestamp);
        insert into "Zebra Reads"."tag""read" values (3, 'A', '${tag(1).toLowerCase()}', '2026-03-01 12:00:00.000001'),
          (5, 'B', '${tag(1)}', '2026-03-01 12:00:10'), (6, 'B', '${tag(1)}', null), (7, null, '${tag(1)}', 'infinity');
        create role ${role} login password 'secret';
        alter role ${role} set default_transaction_read_only = on;
        alter role ${role} set timezone = 'Asia/Tokyo';
        grant usage on schema "Zebra Reads" to ${role}; grant select on all tables in schema "Zebra Reads" to ${role};`);
      reader = await Database.connect({ url: address.toString() });
      const table = {
        table: 'Zebra Reads.tag"read',
        columns: { id: 'Id', deviceId: 'Reader', epc: 'EPC', eventTimestamp: 'When', tenantId: null },
      };
      const replay = replayOf(bundle, { on: reader, table });
      expect(await replay.catchUp()).toEqual({ read: 4, processed: 2, duplicates: 0, failed: 2 });
      expect(await movements(bundle)).toEqual(['→A', 'A→B']);
      expect(
        (await bundle.processor.processTagReads([read('A', 0.000001)])).map(({ skipReason }) => skipReason),
      ).toEqual(['duplicate']);
      expect(await replay.catchUp()).toMatchObject({ read: 0 });
      const wrong = replayOf(bundle, {
        on: reader,
        table: { ...table, columns: { id: 'id; drop table x' } },
      });
      await expect(wrong.catchUp()).rejects.toMatchObject({ code: 'BAD_OPTION' });
      const missing = replayOf(bundle, { on: reader, table: { table: 'no.table' } });
      await expect(missing.catchUp()).rejects.toMatchObject({ code: 'NOT_FOUND' });
      expect(() => replayOf(bundle, { table: { table: 'a.b.c' } })).toThrow(/schema.table/);
    } finally {
      await reader?.close();
      await owner.query(`drop owned by ${role}; drop role ${role}`);
      await owner.close();
      await drop();
    }
  });

  test('RFID-10: lock ids', () => {
    expect(lockIds).toEqual({
      returnDoor: 0x42425530001n,
      oracle: 0x42425530002n,
      replay: 0x42425530003n,
      shipmentLifecycle: 0x42425530004n,
    });
    // FNV-1a's own test vectors.
    expect([stableHash(''), stableHash('a'), stableHash('foobar')]).toEqual([
      0x811c9dc5, 0xe40c292c, 0xbf9cf968,
    ]);
    expect(deviceLockId(' foobar ')).toBe(0x42425540000n + 0xf968n);
  });

  test('RFID-10: replay of all holds the replay lock, replay of a device its own; who meets a lock does not wait', async () => {
    const bundle = await plant();
    const { tallyman } = bundle;
    const replay = replayOf(bundle);
    await collect(tallyman.database, wandering(60));
    await tallyman.exclusively(deviceLockId('A'), async () => {
      expect(await replay.catchUpDevice({ tenantId: 'default', deviceId: 'A' })).toBeUndefined();
      expect(await replay.catchUpDevice({ tenantId: 'default', deviceId: 'B' })).toMatchObject({ read: 20 });
      await expect(replay.replay({ device: 'A', waitMs: 0 })).rejects.toMatchObject({ code: 'BAD_STATE' });
    });
    await tallyman.exclusively(lockIds.replay, async () => {
      expect(await replay.catchUp()).toBeUndefined();
      expect(await replay.replay({ device: 'A' })).toMatchObject({ processed: 20 });
    });
    expect(await replay.catchUp()).toMatchObject({ read: 60, processed: 20 });
  });

  test('RFID-9: instances share the work by device, and the common checkpoint follows', async () => {
    const bundle = await plant();
    const { tallyman, rows } = bundle;
    await collect(tallyman.database, wandering(300));
    const instances = [1, 2, 3].map(() => replayOf(bundle));
    const counts = await Promise.all(instances.map((replay) => replay.catchUpByDevice()));
    const [last] = instances;
    counts.push(await (last as (typeof instances)[number]).catchUpByDevice());
    expect(counts.reduce((all, { processed }) => all + processed, 0)).toBe(300);
    expect(await rows('select count(*)::int as n from rfid.tag_read_processings')).toEqual([{ n: 300 }]);
    expect(await tallyman.checkpoints.load('rfid.replay/iot.tag_reads')).toMatchObject({
      position: { floor: '300', cursor: '300', awaits: null },
    });
    expect(await instances[0]?.catchUp()).toMatchObject({ read: 0 });
  });

  test('RFID-9: follows the source until it is told to stop', async () => {
    const bundle = await plant();
    const stop = new AbortController();
    const replay = replayOf(bundle);
    const following = replay.follow({ signal: stop.signal, intervalMs: 10 });
    await collect(bundle.tallyman.database, wandering(20));
    await expect
      .poll(async () => (await bundle.rows('select 1 from rfid.tag_read_processings')).length)
      .toBe(20);
    stop.abort();
    await following;
  });
});
