import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { contentHash, hashToBase64 } from '../../../src/apps/rfid/content-hash.ts';
import { splitByBasket } from '../../../src/apps/rfid/examined-batch.ts';
import { forgetOldest } from '../../../src/apps/rfid/intake/forget.ts';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { movements, plant, read, tag, tenantId, time } from './support.ts';

describe('processTagReads', () => {
  test('RFID-1: answers each read in its place', async () => {
    const { processor, rows } = await plant();
    const results = await processor.processTagReads([
      read('A', 0),
      read('nobody', 1),
      read('A', 2),
      read('B', 3),
      read('A', 1),
      read('A', 0),
      read('B', 4, { epc: 'beef' }),
    ]);
    expect(results.map((r) => r.skipReason ?? r.errorMessage ?? (r.isNewBasket ? 'new' : 'moved'))).toEqual([
      'new',
      'device "nobody" is not known; register it and send the read again',
      'same location',
      'moved',
      'same location',
      'duplicate',
      'EPC "BEEF" is refused: it has 4 hex digits; tags of 96 bits have 24',
    ]);
    expect(results.map((r) => r.success)).toEqual([true, false, true, true, true, true, false]);
    const [basket] = await rows<{ id: string; epc_uri: string }>('select * from rfid.baskets');
    expect(basket).toMatchObject({ epc_uri: 'urn:epc:id:grai:0614141.12345.1', last_device_id: 'B' });
    expect(results[0]).toMatchObject({ basketId: basket?.id, isNewBasket: true });
    expect(results[5]).toEqual({ ...results[0], isNewBasket: false, skipReason: 'duplicate' });
  });

  test('RFID-2: the same read by MQTT and by replay, in either order, has one effect', async () => {
    const { processor, rows } = await plant();
    const byMqtt = read('A', 0.123456);
    const byReplay = read(' A ', 0, {
      epc: tag(1).toLowerCase(),
      eventTimestamp: '2026-03-01T13:00:00.1234567+01:00',
      processorType: 'Replay',
      zbTagReadId: '7',
    });
    const [first] = await processor.processTagReads([byMqtt]);
    const [again] = await processor.processTagReads([byReplay]);
    expect(again).toEqual({ ...first, isNewBasket: false, skipReason: 'duplicate' });
    const other = { ...byReplay, epc: tag(2), zbTagReadId: '8' };
    expect((await processor.processTagReads([other]))[0]?.isNewBasket).toBe(true);
    expect((await processor.processTagReads([{ ...byMqtt, epc: tag(2) }]))[0]?.skipReason).toBe('duplicate');
    // The same row of iot under another content: it is still the same row.
    expect((await processor.processTagReads([{ ...other, epc: tag(3) }]))[0]?.skipReason).toBe('duplicate');
    const kept = await rows<{ hash: string }>(
      `select encode(content_hash, 'base64') as hash, zb_tag_read_id, processor_type from rfid.tag_read_processings order by id`,
    );
    const canonical = contentHash({ deviceId: 'A', epcHex: tag(1), timestamp: time(0.123456) });
    expect(kept).toEqual([
      { hash: hashToBase64(canonical), zb_tag_read_id: null, processor_type: 'MQTT' },
      { hash: expect.any(String), zb_tag_read_id: '8', processor_type: 'Replay' },
    ]);
  });

  test('RFID-2: both keys are unique for a tenant; another tenant has its own', async () => {
    const { processor, rows } = await plant();
    await processor.processTagReads([read('A', 0, { zbTagReadId: '1' })]);
    const copy = (set: string) =>
      rows(`insert into rfid.tag_read_processings (tenant_id, zb_tag_read_id, content_hash, processor_type, epc_hex, device_id)
            select ${set} from rfid.tag_read_processings`);
    await expect(copy(`tenant_id, null, content_hash, 'MQTT', '', ''`)).rejects.toThrow(
      /processings_by_content/,
    );
    await expect(copy(`tenant_id, 1, sha256('other'), 'MQTT', '', ''`)).rejects.toThrow(
      /processings_by_tag_read/,
    );
    await copy(`'other', zb_tag_read_id, content_hash, 'MQTT', '', ''`);
  });

  test('RFID-2: a read that comes again is known, also when its basket was put back in time or taken away by hand', async () => {
    const { processor, rows } = await plant();
    const [first] = await processor.processTagReads([read('A', 5)]);
    await rows(`update rfid.baskets set last_seen_at = last_seen_at - interval '1 hour'`);
    expect(await processor.processTagReads([read('A', 5)])).toEqual([
      { ...first, isNewBasket: false, skipReason: 'duplicate' },
    ]);
    await rows('delete from rfid.baskets');
    expect(await processor.processTagReads([read('A', 5)])).toMatchObject([{ skipReason: 'duplicate' }]);
    expect(await rows('select count(*)::int as n from rfid.tag_read_processings')).toEqual([{ n: 1 }]);
    expect(await rows('select count(*)::int as n from rfid.movements')).toEqual([{ n: 1 }]);
  });

  test('RFID-4: reads of one basket are in one lane, in their order, however many lanes there are', async () => {
    const { processor } = await plant();
    const reads = Array.from({ length: 60 }, (_, i) =>
      i % 10 === 9 ? read('X', i) : read('A', i, { epc: tag(i % 7) }),
    );
    const batch = await processor.examine(reads);
    for (const lanes of [1, 3, 8]) {
      const parts = splitByBasket(batch, lanes);
      const placed = parts.flatMap(({ from, batch: part }) =>
        part.places.map(({ sound, place }, i) => [from[i], sound ? part.sound[place] : part.failures[place]]),
      );
      const expected = batch.places.map(({ sound, place }, from) => [
        from,
        sound ? batch.sound[place] : batch.failures[place],
      ]);
      expect(placed.toSorted(([a], [b]) => Number(a) - Number(b))).toEqual(expected);
      const lanesOf = Map.groupBy(
        parts.flatMap(({ lane, batch: part }) => part.sound.map(({ basketKey }) => ({ basketKey, lane }))),
        ({ basketKey }) => basketKey,
      );
      for (const found of lanesOf.values()) expect(new Set(found.map(({ lane }) => lane)).size).toBe(1);
      for (const { from } of parts) expect(from).toEqual(from.toSorted((a, b) => a - b));
    }
  });

  test('RFID-3: a failed read does not occupy its key', async () => {
    const { processor, rows, tallyman, at, devices } = await plant();
    const early = read('D', 0, { zbTagReadId: '5' });
    for (let i = 0; i < 2; i += 1)
      expect((await processor.processTagReads([early]))[0]).toMatchObject({ success: false, basketId: null });
    await tallyman.database.query(
      `insert into iot.devices (tenant_id, serial, name, location_id) values ($1, 'D', 'D', $2)`,
      [tenantId, at.A],
    );
    devices.drop();
    expect((await processor.processTagReads([early]))[0]).toMatchObject({ success: true, isNewBasket: true });
    expect(
      await rows(
        `select count(*)::int as n, count(error_message)::int as failed from rfid.tag_read_processings`,
      ),
    ).toEqual([{ n: 3, failed: 2 }]);
  });

  test('RFID-5: one basket for each tenant and EPC', async () => {
    const { processor, rows, tallyman } = await plant();
    await tallyman.database.query(`
      with l as (insert into iot.locations (tenant_id, name) values ('other', 'A') returning id)
      insert into iot.devices (tenant_id, serial, name, location_id) select 'other', 'A', 'A', id from l`);
    await processor.processTagReads([read('A', 0), read('A', 0, { tenantId: 'other' })]);
    await processor.processTagReads([
      read('A', 1, { tenantId: 'other' }),
      read('A', 1, { epc: tag(1).toLowerCase() }),
    ]);
    expect(await rows('select tenant_id, epc_hex from rfid.baskets order by tenant_id')).toEqual([
      { tenant_id: 'default', epc_hex: tag(1) },
      { tenant_id: 'other', epc_hex: tag(1) },
    ]);
  });

  test('RFID-6: a late read is put in its place; the basket stays where it was seen last', async () => {
    const bundle = await plant();
    await bundle.processor.processTagReads([read('A', 0)]);
    await bundle.processor.processTagReads([read('B', 10)]);
    const [late] = await bundle.processor.processTagReads([read('C', 5)]);
    expect(late).toMatchObject({ success: true, skipReason: null, movementId: expect.any(String) });
    expect(await movements(bundle)).toEqual(['→A', 'A→C', 'C→B']);
    const [middle] = await bundle.processor.processTagReads([read('A', 2)]);
    expect(middle).toMatchObject({ skipReason: 'same location', movementId: null });
    expect(
      await bundle.rows(`select location_id, last_device_id, first_seen_at, last_seen_at from rfid.baskets`),
    ).toEqual([
      {
        location_id: bundle.at.B,
        last_device_id: 'B',
        first_seen_at: new Date(time(0)),
        last_seen_at: new Date(time(10)),
      },
    ]);
  });

  test('RFID-6: the first and the last sighting of a batch are the earliest and the latest of its reads', async () => {
    const { processor, rows } = await plant();
    await processor.processTagReads([read('A', 5), read('A', 9), read('A', 2)]);
    expect(await rows('select first_seen_at, last_seen_at from rfid.baskets')).toEqual([
      { first_seen_at: new Date(time(2)), last_seen_at: new Date(time(9)) },
    ]);
  });

  test('RFID-7: the same movement again within five minutes is counted on the first, in one batch and in many', async () => {
    // The bucket ends at 300 s.
    const path = [
      read('A', 0),
      read('B', 200),
      read('A', 210),
      read('B', 299),
      read('A', 310),
      read('B', 499.9),
    ];
    const wanted = ['→A', 'A→B', 'B→A'];
    for (const batches of [[path], path.map((one) => [one])]) {
      const bundle = await plant();
      const results = [];
      for (const batch of batches) results.push(...(await bundle.processor.processTagReads(batch)));
      expect(await movements(bundle)).toEqual(wanted);
      expect(results.map(({ skipReason }) => skipReason)).toEqual([
        null,
        null,
        null,
        'same movement',
        'same movement',
        'same movement',
      ]);
      expect(results[5]?.movementId).toBe(results[1]?.movementId);
      expect(
        await bundle.rows('select repeats, last_at from rfid.movements order by event_timestamp'),
      ).toEqual([
        { repeats: 0, last_at: null },
        { repeats: 2, last_at: new Date(time(499.9)) },
        { repeats: 1, last_at: new Date(time(310)) },
      ]);
      // Five minutes after the one that was kept, not after the last repetition.
      await bundle.processor.processTagReads([read('A', 499.999999), read('B', 500)]);
      expect(await movements(bundle)).toEqual([...wanted, 'A→B']);
    }
  });

  test('RFID-7: a basket between two antennas for ten minutes: 5 movements; 300 without window; 1 with a minimum stay', async () => {
    const bounce = Array.from({ length: 300 }, (_, i) => read(i % 2 === 0 ? 'A' : 'B', 17 + i * 2));
    for (const { options, count, repeats } of [
      { options: {}, count: 5, repeats: 295 },
      { options: { windowMs: 0 }, count: 300, repeats: 0 },
      { options: { minimumStayMs: 5000 }, count: 1, repeats: 0 },
    ]) {
      const bundle = await plant(['A', 'B'], { movements: options });
      for (let from = 0; from < 300; from += 50)
        await bundle.processor.processTagReads(bounce.slice(from, from + 50));
      expect(
        await bundle.rows('select count(*)::int as count, sum(repeats)::int as repeats from rfid.movements'),
      ).toEqual([{ count, repeats }]);
    }
  });

  test('RFID-6: a late read from beyond the horizon is stale: a configured one, or that of the reads that are kept', async () => {
    const bundle = await plant(['A', 'B'], {
      now: () => Date.UTC(2026, 2, 1, 12, 10),
      movements: { lateHorizonMs: 300_000 },
    });
    const { processor, rows, tallyman } = bundle;
    await processor.processTagReads([read('A', 200), read('A', 400)]);
    const skip = async (seconds: number) =>
      (await processor.processTagReads([read('B', seconds)]))[0]?.skipReason;
    expect(await skip(299)).toBe('stale');
    expect(await skip(300)).toBe(null);
    expect(await movements(bundle)).toEqual(['→A', 'A→B', 'B→A']);
    // The read at 400 s stays; the horizon is that of the others, and what can repeat them is beyond it, too.
    await rows(
      `update rfid.tag_read_processings set processed_at = now() - interval '2 hours' where event_timestamp < $1`,
      [time(350)],
    );
    expect(
      await forgetOldest(
        tallyman.database,
        { table: 'rfid.tag_read_processings', at: 'processed_at' },
        { keepMs: 3_600_000 },
      ),
    ).toBeGreaterThan(0);
    const later = new TagReadProcessor({ database: tallyman.database, devices: bundle.devices });
    await later.processTagReads([read('A', 2000)]);
    const [beyond, within] = [
      await later.processTagReads([read('B', 600)]),
      await later.processTagReads([read('B', 600.5)]),
    ];
    expect([beyond[0]?.skipReason, within[0]?.skipReason]).toEqual(['stale', null]);
  });

  test('RFID-7: another window than before: a late read meets movements of the old window, and is placed', async () => {
    const bundle = await plant();
    const { tallyman, devices } = bundle;
    // Kept in the bucket from 0 s to 300 s.
    await bundle.processor.processTagReads([read('A', 0), read('B', 240), read('A', 250)]);
    const narrow = new TagReadProcessor({
      database: tallyman.database,
      devices,
      movements: { windowMs: 60_000 },
    });
    // In its bucket of 60 s this one begins at 0 s, too.
    expect(
      (await narrow.processTagReads([read('B', 30), read('A', 40)])).map((one) => one.skipReason),
    ).toEqual([null, null]);
    expect(await movements(bundle)).toEqual(['→A', 'A→B', 'B→A', 'A→B', 'B→A']);
  });

  test('RFID-2: the content hash as .NET writes it, with seven digits', async () => {
    const { rows } = await plant([]);
    const wanted = hash('sha256', `dock-1|${tag(1)}|2026-03-01T09:30:00.1234560Z`, 'base64');
    for (const at of ['2026-03-01T09:30:00.123456Z', '2026-03-01T18:30:00.123456+09:00'])
      expect(
        await rows(`select rfid.content_hash_o(' dock-1 ', lower($1), $2::timestamptz) as hash`, [
          tag(1),
          at,
        ]),
      ).toEqual([{ hash: wanted }]);
  });

  test('RFID-7: the database refuses a movement that was decided twice from the same state', async () => {
    const { processor, rows } = await plant();
    await processor.processTagReads([read('A', 1), read('B', 2)]);
    await expect(
      rows(`insert into rfid.movements (basket_id, from_location_id, to_location_id, event_timestamp, window_start, device_id, tenant_id)
            select basket_id, from_location_id, to_location_id, event_timestamp + interval '1 s', window_start, device_id, tenant_id
              from rfid.movements where from_location_id is null`),
    ).rejects.toThrow(/movements_once/);
  });

  test('times that cannot be are refused with a reason', async () => {
    const { processor } = await plant(['A'], { now: () => Date.UTC(2026, 2, 1, 12) });
    const ask = async (eventTimestamp: string) =>
      (await processor.processTagReads([read('A', 0, { eventTimestamp })]))[0]?.errorMessage;
    expect(await ask(time(300))).toBe(null);
    expect(await ask(time(300.000001))).toMatch(/future/);
    expect(await ask('1970-01-01T00:00:00Z')).toMatch(/clock set/);
    expect(await ask('yesterday')).toMatch(/not a time/);
    for (const zone of ['+25:00', '-24:00', '+00:60', '+99'])
      expect(await ask(`2026-03-01T12:00:00${zone}`)).toMatch(/zone/);
    expect(await ask('2026-03-01T23:59:00+15:59')).toBe(null);
  });

  test('an empty call does nothing; names may be anything a database can keep', async () => {
    const { processor } = await plant(['A', 'Tür "Süd" \\ {1,2}, null', 'null']);
    expect(await processor.processTagReads([])).toEqual([]);
    const results = await processor.processTagReads([
      read('Tür "Süd" \\ {1,2}, null', 0),
      read('null', 1),
      read('\0', 2),
      read('x'.repeat(300), 2),
      read(7 as unknown as string, 3),
    ]);
    expect(results.map((r) => r.errorMessage)).toEqual([
      null,
      null,
      'deviceId contains a NUL character',
      'deviceId is longer than 256 characters',
      'deviceId must be a text, got number',
    ]);
  });
});
