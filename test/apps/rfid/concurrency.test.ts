import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import { type Plant, plant, read, tag } from './support.ts';

const doors = ['A', 'B', 'C'];

/** Reads of 40 baskets in a fixed disorder: every batch overlaps every other. */
function stream(count: number): TagRead[] {
  const [reads] = fc.sample(
    fc.array(fc.tuple(fc.constantFrom(...doors), fc.nat(39), fc.nat(2_000)), {
      minLength: count,
      maxLength: count,
    }),
    { numRuns: 1, seed: 7 },
  );
  return (reads ?? []).map(([door, basket, at], i) => read(door, at + i / 1_000_000, { epc: tag(basket) }));
}

/** Each as another process would have it: calls of one processor take turns. */
const fleet = ({ tallyman, devices }: Plant, count: number): TagReadProcessor[] =>
  Array.from({ length: count }, () => new TagReadProcessor({ database: tallyman.database, devices }));

const batches = (reads: readonly TagRead[], size: number): TagRead[][] =>
  Array.from({ length: Math.ceil(reads.length / size) }, (_, i) => reads.slice(i * size, (i + 1) * size));

/** Whatever the order in which batches committed: each read once, and every basket's movements make a path. */
async function expectSound({ rows }: Plant, reads: readonly TagRead[]): Promise<void> {
  const baskets = new Set(reads.map(({ epc }) => epc)).size;
  const [sums] = await rows<object>(`
    select (select count(*) from rfid.tag_read_processings)::int as processings,
           (select count(*) from rfid.tag_read_processings where error_message is not null)::int as failed,
           (select count(*) from rfid.tag_read_processings where is_new_basket)::int as new,
           (select count(*) from rfid.tag_read_processings where skip_reason is null)::int as moved,
           (select count(*) from rfid.movements)::int as movements,
           (select count(*) from rfid.baskets)::int as baskets,
           (select count(*) from rfid.baskets b where b.last_seen_at is null
               or b.movement_id is distinct from (select m.id from rfid.movements m where m.basket_id = b.id
                                                   order by m.event_timestamp desc limit 1))::int as astray`);
  const { moved, ...rest } = sums as { moved: number };
  expect(rest).toEqual({
    processings: new Set(reads.map((r) => `${r.deviceId}|${r.epc}|${r.eventTimestamp}`)).size,
    failed: 0,
    new: baskets,
    movements: moved,
    baskets,
    astray: 0,
  });
  const broken = await rows(`
    select * from (select from_location_id as "from",
                          lag(to_location_id) over (partition by basket_id order by event_timestamp) as before
                     from rfid.movements) m where m."from" is distinct from m.before`);
  expect(broken).toEqual([]);
}

describe('many callers on the same baskets', () => {
  test('RFID-2: the same reads by both paths at once, in opposite orders, have one effect', async () => {
    const bundle = await plant(doors);
    const reads = stream(3000);
    const replayed = reads.map(
      (one, i): TagRead => ({ ...one, processorType: 'Replay', zbTagReadId: String(i + 1) }),
    );
    const calls = [...batches(reads, 100), ...batches(replayed.toReversed(), 130)];
    const processors = fleet(bundle, 8);
    const answers = await Promise.all(
      calls.map((batch, i) => (processors[i % 8] as TagReadProcessor).processTagReads(batch)),
    );
    await expectSound(bundle, reads);
    const fresh = answers.flat().filter(({ skipReason }) => skipReason !== 'duplicate');
    expect(fresh).toHaveLength(reads.length);
    expect(answers.flat().every(({ success, basketId }) => success && basketId !== null)).toBe(true);
  });

  test('RFID-4: nobody waits in a circle, also when all baskets are new and batches run against each other', async () => {
    const bundle = await plant(doors);
    const { rows } = bundle;
    const reads = Array.from({ length: 300 }, (_, i) => read('A', i, { epc: tag(i) }));
    const shuffled = [
      reads,
      reads.toReversed(),
      reads.toSorted((a, b) => (a.epc.slice(-1) < b.epc.slice(-1) ? -1 : 1)),
    ];
    const all = [...shuffled, ...shuffled];
    const processors = fleet(bundle, all.length);
    await Promise.all(processors.map((processor, i) => processor.processTagReads(all[i] ?? [])));
    await expectSound(bundle, reads);
    expect(
      await rows('select deadlocks::int from pg_stat_database where datname = current_database()'),
    ).toEqual([{ deadlocks: 0 }]);
  });

  test('RFID-2: connections killed in the middle, batches sent again: each read once', async () => {
    const bundle = await plant(doors);
    const { rows } = bundle;
    const reads = stream(4000);
    let finished = false;
    let killed = 0;
    const killer = (async () => {
      while (!finished) {
        const [victim] = await rows<{ n: number }>(
          `select count(pg_terminate_backend(pid))::int as n from (
             select pid from pg_stat_activity
              where datname = current_database() and pid <> pg_backend_pid() and query ~ 'rfid|commit' and state <> 'idle'
              order by random() limit 2) v`,
        ).catch(() => []);
        killed += victim?.n ?? 0;
        await sleep(3);
      }
    })();
    const untilDone = async (processor: TagReadProcessor, batch: readonly TagRead[]): Promise<void> => {
      for (;;) {
        try {
          await processor.processTagReads(batch);
          return;
        } catch {
          await sleep(2);
        }
      }
    };
    const queue = batches(reads, 50);
    await Promise.all(
      fleet(bundle, 6).map(async (processor) => {
        for (let batch = queue.shift(); batch; batch = queue.shift()) await untilDone(processor, batch);
      }),
    );
    finished = true;
    await killer;
    expect(killed).toBeGreaterThan(5);
    // One that was killed when it had just finished is still in the pool, until the pool hears of it.
    await sleep(300);
    await expectSound(bundle, reads);
  });

  test('one tag read id under two tags, at once: one of them is the read', async () => {
    const bundle = await plant(doors);
    const twins = [1, 2].map((n) => read('A', 0, { epc: tag(n), zbTagReadId: '1' }));
    const [one, other] = fleet(bundle, 2);
    const answers = await Promise.all(
      [one, other].map((processor, i) => processor?.processTagReads(twins.slice(i, i + 1)) ?? []),
    );
    expect(
      answers
        .flat()
        .map((r) => r.skipReason)
        .toSorted(),
    ).toEqual(['duplicate', null]);
  });

  test('10,000 reads in one call', async () => {
    const bundle = await plant(doors);
    const reads = stream(10_000);
    expect(await bundle.processor.processTagReads(reads)).toHaveLength(10_000);
    await expectSound(bundle, reads);
  });
});
