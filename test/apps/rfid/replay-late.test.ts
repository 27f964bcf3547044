import fc from 'fast-check';
import type pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Position } from '../../../src/apps/rfid/replay/position.ts';
import { collect, replayOf, wandering } from './replay-support.ts';
import { type Plant, plant, read, tag } from './support.ts';

/** A writer whose transaction is open until it is told to end it. */
async function writer({ tallyman }: Plant): Promise<pg.Client> {
  const client = await tallyman.database.dedicated();
  onTestFinished(() => client.end());
  await client.query('begin');
  return client;
}

const position = async ({ tallyman }: Plant): Promise<Position | undefined> =>
  (await tallyman.checkpoints.load<Position>('rfid.replay/iot.tag_reads'))?.position;

type Step =
  | { do: 'write'; who: number; rows: number }
  | { do: 'commit'; who: number }
  | { do: 'rollback'; who: number }
  | { do: 'replay' }
  | { do: 'by device' };

describe('rows that commit late with a lower id', () => {
  test('RFID-9: are found; the rows above them are not held up', async () => {
    const bundle = await plant();
    const replay = replayOf(bundle);
    const late = await writer(bundle);
    expect(await collect(late, [read('A', 0, { epc: tag(99) })])).toEqual(['1']);
    await collect(bundle.tallyman.database, wandering(20));
    expect(await replay.catchUp()).toMatchObject({ processed: 20 });
    expect(await replay.catchUp()).toMatchObject({ read: 0 });
    expect(await position(bundle)).toMatchObject({ floor: '0', cursor: '21', awaits: { id: '21' } });
    await late.query('commit');
    expect(await replay.catchUp()).toEqual({ read: 21, processed: 1, duplicates: 20, failed: 0 });
    expect(await position(bundle)).toEqual({ floor: '21', cursor: '21', awaits: null });
    expect(await replay.catchUp()).toMatchObject({ read: 0 });
  });

  test('RFID-9: one that rolls back is not waited for any longer', async () => {
    const bundle = await plant();
    const replay = replayOf(bundle);
    const late = await writer(bundle);
    await collect(late, [read('A', 0)]);
    await collect(bundle.tallyman.database, wandering(2));
    await replay.catchUp();
    await late.query('rollback');
    await replay.catchUp();
    expect(await position(bundle)).toEqual({ floor: '3', cursor: '3', awaits: null });
  });

  test('RFID-9: a second one, later than the first, is found when nothing new comes any more', async () => {
    const bundle = await plant();
    const replay = replayOf(bundle);
    const first = await writer(bundle);
    const second = await writer(bundle);
    await collect(first, [read('A', 0, { epc: tag(91) })]);
    await collect(bundle.tallyman.database, wandering(5));
    await replay.catchUp();
    await collect(second, [read('A', 0, { epc: tag(92) })]);
    await collect(bundle.tallyman.database, wandering(5, 100));
    await replay.catchUp();
    await first.query('commit');
    await replay.catchUp();
    await second.query('commit');
    await replay.catchUp();
    expect(
      await bundle.rows('select count(*)::int as n from rfid.baskets where epc_hex = any ($1)', [
        [tag(91), tag(92)],
      ]),
    ).toEqual([{ n: 2 }]);
    expect(await position(bundle)).toEqual({ floor: '12', cursor: '12', awaits: null });
  });

  test('RFID-9: a device whose first row comes late is found when instances share the work by device', async () => {
    const bundle = await plant();
    const replay = replayOf(bundle);
    const late = await writer(bundle);
    await collect(late, [read('C', 0, { epc: tag(99) })]);
    await collect(bundle.tallyman.database, [read('A', 1), read('B', 2)]);
    expect(await replay.catchUpByDevice()).toMatchObject({ processed: 2 });
    expect(await replay.catchUpByDevice()).toMatchObject({ processed: 0 });
    expect(await position(bundle)).toMatchObject({ floor: '0' });
    await late.query('commit');
    expect(await replay.catchUpByDevice()).toMatchObject({ processed: 1 });
    await replay.catchUpByDevice();
    expect(await position(bundle)).toMatchObject({ floor: '3', awaits: null });
    expect(await replay.catchUp()).toMatchObject({ read: 0 });
  });

  test('RFID-9: are found behind a view, too, where only transactions can be told', async () => {
    const bundle = await plant();
    await bundle.tallyman.database.query('create view iot.some_reads as select * from iot.tag_reads');
    const replay = replayOf(bundle, { table: { table: 'iot.some_reads', graceMs: 1 } });
    const late = await writer(bundle);
    await collect(late, [read('A', 0, { epc: tag(99) })]);
    await collect(bundle.tallyman.database, wandering(3));
    expect(await replay.catchUp()).toMatchObject({ processed: 3 });
    expect(await replay.catchUp()).toMatchObject({ read: 0 });
    await late.query('commit');
    await expect.poll(async () => (await replay.catchUp())?.processed).toBe(1);
  });

  test('RFID-9: are found in a partition, written to by itself', async () => {
    const bundle = await plant();
    await bundle.tallyman.database.query(`
      create table parts (like iot.tag_reads) partition by list (tenant_id);
      create table part partition of parts default;
      create sequence part_ids`);
    const insert = `insert into part (id, event_timestamp, received_at, device_id, epc_hex, tenant_id)
      select nextval('part_ids'), '2026-03-01T12:00:00Z', now(), 'A', $1, 'default'`;
    const replay = replayOf(bundle, { table: { table: 'parts' } });
    const late = await writer(bundle);
    await late.query(insert, [tag(1)]);
    await bundle.tallyman.database.query(insert, [tag(2)]);
    expect(await replay.catchUp()).toMatchObject({ processed: 1 });
    await late.query('commit');
    expect(await replay.catchUp()).toMatchObject({ processed: 1 });
  });

  test('RFID-9: whatever the order of beginning, writing, ending and reading, every committed row counts once', async () => {
    const step: fc.Arbitrary<Step> = fc.oneof(
      {
        weight: 3,
        arbitrary: fc.record({
          do: fc.constant('write' as const),
          who: fc.nat(2),
          rows: fc.integer({ min: 1, max: 9 }),
        }),
      },
      {
        weight: 2,
        arbitrary: fc.record({ do: fc.constantFrom('commit' as const, 'rollback' as const), who: fc.nat(2) }),
      },
      { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('replay' as const, 'by device' as const) }) },
    );
    const bundle = await plant();
    const { tallyman, rows } = bundle;
    const clients = await Promise.all([0, 1, 2].map(() => tallyman.database.dedicated()));
    onTestFinished(async () => void (await Promise.all(clients.map((client) => client.end()))));
    const replay = replayOf(bundle);
    let seconds = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
        for (const client of clients) await client.query('begin');
        for (const next of steps) {
          if (next.do === 'replay') await replay.catchUp();
          else if (next.do === 'by device') await replay.catchUpByDevice();
          else if (next.do === 'write') {
            await collect(clients[next.who] as pg.Client, wandering(next.rows, seconds));
            seconds += next.rows;
          } else await clients[next.who]?.query(`${next.do}; begin`);
        }
        for (const client of clients) await client.query('commit');
        for (let turn = 0; turn < 3; turn += 1) await replay.catchUp();
        expect(
          await rows(`select r.id from iot.tag_reads r left join rfid.tag_read_processings p on p.zb_tag_read_id = r.id
                       where p.id is null`),
        ).toEqual([]);
        const [{ read, processed } = {}] = await rows<{ read?: number; processed?: number }>(
          `select (select count(*)::int from iot.tag_reads) as read,
                  (select count(*)::int from rfid.tag_read_processings) as processed`,
        );
        expect(processed).toBe(read);
        expect((await position(bundle))?.awaits ?? null).toBeNull();
      }),
      { numRuns: 25 },
    );
  });
});
