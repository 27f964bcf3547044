import { describe, expect, test } from 'vitest';
import { Books, balances, beginRun } from '../../../../src/apps/rfid/demo/books.ts';
import { unreadableKind } from '../../../../src/apps/rfid/intake/index.ts';
import { type Transmission, transmissions } from '../../../../src/simulate/readers.ts';
import { Truth } from '../../../../src/simulate/truth.ts';
import { type Plant, plant } from '../support.ts';

const beganAt = Date.UTC(2026, 2, 1, 12);

interface Scene extends Plant {
  readonly books: Books;
  /** Sends messages, acknowledged by the broker; the processor gets all but those that `isLost` names. */
  send(count: number, isLost?: (i: number) => boolean): Promise<void>;
}

async function scene(): Promise<Scene> {
  const it = await plant(['dock-1', 'dock-2', 'dock-3']);
  const { database } = it.tallyman;
  const run = await beginRun(database, 20);
  const truth = new Truth();
  const books = new Books(database, run, truth);
  const source = transmissions({ seed: 7, devices: 3, baskets: 20, firstBasket: run.firstBasket });
  return {
    ...it,
    books,
    send: async (count, isLost = () => false) => {
      for (let i = 0; i < count; i += 1) {
        const each: Transmission = source.next().value;
        truth.sent(each.reads, each.again);
        const onAcknowledged = books.send(each, beganAt);
        onAcknowledged();
        if (!isLost(i)) await it.processor.processTagReads(readsOf(each));
      }
    },
  };
}

const readsOf = ({ reads }: Transmission) =>
  reads.map(({ epc, device, at }) => ({
    epc,
    deviceId: device,
    eventTimestamp: `${new Date(beganAt + Math.floor(at / 1000)).toISOString().slice(0, -1)}${String(at % 1000).padStart(3, '0')}Z`,
    processorType: 'MQTT' as const,
    tenantId: 'default',
  }));

const processing = `select id from rfid.tag_read_processings order by id limit 1`;

describe('the books', () => {
  test('balance when each read is counted once, whatever is seen of it on the way', async () => {
    const { books, send } = await scene();
    await send(100);
    const running = await books.audit();
    expect(running).toMatchObject({ inFlight: 0, lost: 0, twice: 0, complete: false });
    expect(running.counted).toBe(running.distinct);
    expect(balances(running)).toBe(true);
    await send(100);
    const closed = await books.close(true);
    expect(closed.counted).toBeGreaterThan(running.counted);
    expect(closed).toMatchObject({ inFlight: 0, astray: 0, complete: true });
    expect(closed.movements).toBe(closed.movementsExpected);
    expect(balances(closed)).toBe(true);
  });

  test('a read that does not come is in flight, and at the end lost', async () => {
    const { books, send } = await scene();
    await send(100, (i) => i === 50);
    const running = await books.audit();
    expect(running.inFlight).toBeGreaterThan(0);
    expect(balances(running)).toBe(true);
    const left = await books.close(false);
    expect(left).toMatchObject({ inFlight: running.inFlight, lost: 0, complete: false });
    expect(balances(left)).toBe(true);
    const drained = await books.close(true);
    expect(drained).toMatchObject({ inFlight: 0, lost: running.inFlight });
    expect(balances(drained)).toBe(false);
  });

  test.each([
    {
      what: 'a read that is counted twice',
      sql: `insert into rfid.tag_read_processings
              (content_hash, processor_type, event_timestamp, epc_hex, device_id, tenant_id)
            select sha256('another'), processor_type, event_timestamp, epc_hex, device_id, tenant_id
              from rfid.tag_read_processings where id = (${processing})`,
      found: { twice: 1 },
    },
    {
      what: 'a count that vanishes after it was seen',
      sql: `delete from rfid.tag_read_processings where id = (${processing})`,
      found: { lost: 1 },
    },
    {
      what: 'a movement that is missing',
      sql: 'delete from rfid.movements where id = (select min(id) from rfid.movements)',
      found: { astray: 1 },
    },
    {
      what: 'a movement too many',
      sql: `insert into rfid.movements (basket_id, from_location_id, to_location_id, event_timestamp, window_start,
                                        device_id, tenant_id)
            select basket_id, to_location_id, to_location_id, event_timestamp, window_start, device_id, tenant_id
              from rfid.movements order by id limit 1`,
      found: { astray: 1 },
    },
    {
      what: 'a basket that stands elsewhere',
      sql: `update rfid.baskets set location_id = (select l.id from iot.locations l where l.id <> location_id limit 1)
             where id = (select min(id) from rfid.baskets)`,
      found: { astray: 1 },
    },
  ])('$what is found', async ({ sql, found }) => {
    const { books, send, rows } = await scene();
    await send(60);
    await books.audit();
    await rows(sql);
    const closed = await books.close(true);
    expect(closed).toMatchObject(found);
    expect(balances(closed)).toBe(false);
  });

  test('a damaged message has to be a dead letter', async () => {
    const it = await plant(['dock-1']);
    const truth = new Truth();
    const books = new Books(it.tallyman.database, await beginRun(it.tallyman.database, 20), truth);
    truth.damaged();
    books.send(
      { topic: 't', device: 'dock-1', reads: [], again: false, at: 0, payload: () => '{"type' },
      beganAt,
    );
    const missing = await books.close(true);
    expect(missing).toMatchObject({ damaged: 1, deadLetters: 0 });
    expect(balances(missing)).toBe(false);
    await it.rows(
      `insert into tallyman.dead_letters (id, queue, kind, tenant_id, entity_id, priority, attempts, max_attempts,
                                          created_at, first_failed_at, last_failed_at, payload)
       values (1, 'iot', $1, 'default', '1', 2, 1, 1, now(), now(), now(), '{"body": "{\\"type"}')`,
      [unreadableKind],
    );
    expect(balances(await books.close(true))).toBe(true);
  });

  test('each run has its own baskets, and is told what was there before', async () => {
    const it = await scene();
    await it.send(50);
    const { before, firstBasket } = await beginRun(it.tallyman.database, 20);
    expect(before.runs).toBe(1);
    expect(before.reads).toBe((await it.books.audit()).counted);
    const other = new Books(it.tallyman.database, { firstBasket, baskets: 20, before }, new Truth());
    expect(await other.close(true)).toMatchObject({ counted: 0, twice: 0, movements: 0 });
  });
});
