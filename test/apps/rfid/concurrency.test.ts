import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import { until } from '../../support/engine.ts';
import { booksOf, expectedBooks } from './books.ts';
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

/** Whatever the order in which batches committed: each read once, and the books of one pass over the sorted reads. */
async function expectSound({ rows, tallyman }: Plant, reads: readonly TagRead[]): Promise<void> {
  const [sums] = await rows<object>(`
    select count(*)::int as processings, count(error_message)::int as failed,
           count(*) filter (where is_new_basket)::int as new from rfid.tag_read_processings`);
  expect(sums).toEqual({
    processings: new Set(reads.map((r) => `${r.deviceId}|${r.epc}|${r.eventTimestamp}`)).size,
    failed: 0,
    new: new Set(reads.map(({ epc }) => epc)).size,
  });
  expect(await booksOf(tallyman.database)).toEqual(expectedBooks(reads));
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
      // Not without end: where a batch takes longer than the time between two kills, none would get through.
      while (!finished && killed < 100) {
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
    await until('every connection of the pool works', async () => {
      const tried = await Promise.allSettled(Array.from({ length: 12 }, () => rows('select pg_sleep(0.1)')));
      return tried.every(({ status }) => status === 'fulfilled');
    });
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
