/** The order of arrival, batches, instances, paths and crashes make no difference to baskets and movements. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { TagReadProcessor } from '../../../src/apps/rfid/process.ts';
import { Replay } from '../../../src/apps/rfid/replay/replay.ts';
import { TagReadSource } from '../../../src/apps/rfid/replay/source.ts';
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import { readEvents } from '../../../src/events/read.ts';
import { booksOf, expectedBooks } from './books.ts';
import { collect } from './replay-support.ts';
import { type Plant, plant, read, tag } from './support.ts';

const places = { A: 'A', A2: 'A', B: 'B', C: 'C' } as const;
const allRules = [
  { windowMs: 300_000, minimumStayMs: 0 },
  { windowMs: 20_000, minimumStayMs: 0 },
  { windowMs: 0, minimumStayMs: 0 },
  { windowMs: 300_000, minimumStayMs: 5000 },
  { windowMs: 20_000, minimumStayMs: 3000 },
] as const;

/** Two places, one with two readers, at one instant; bounces; windows and their edges. */
const sightings = fc.array(
  fc.record({
    basket: fc.nat(1),
    device: fc.constantFrom(...(Object.keys(places) as (keyof typeof places)[])),
    seconds: fc.oneof(
      fc.integer({ min: 0, max: 20 }),
      fc.integer({ min: 0, max: 60 }).map((n) => n * 20),
      fc.constantFrom(299.999999, 300, 300.000001, 599.999999),
    ),
  }),
  { minLength: 1, maxLength: 40, size: 'max' },
);

const paths = ['MQTT', 'Replay', 'redrive'] as const;
const fates = ['commits', 'dies before its commit', 'dies after its commit'] as const;

/** How the reads arrive: in another order, in batches of these sizes, which come by these ways, some of them at once. */
const journeys = fc.record({
  keys: fc.array(fc.nat(1000), { minLength: 40, maxLength: 40 }),
  batches: fc.array(
    fc.record({
      size: fc.integer({ min: 1, max: 9 }),
      path: fc.constantFrom(...paths),
      fate: fc.constantFrom(...fates),
      instance: fc.nat(2),
      atOnce: fc.boolean(),
    }),
    { minLength: 40, maxLength: 40 },
  ),
});
type Batch = { readonly reads: readonly TagRead[] } & Omit<
  ReturnType<typeof fc.sample<Journey>>[number]['batches'][number],
  'size'
>;
type Journey = typeof journeys extends fc.Arbitrary<infer T> ? T : never;

/** An instance of the plant with these rules. */
class Instance {
  readonly #plant: Plant;
  readonly #processor: TagReadProcessor;
  readonly #replay: Replay;

  constructor(bundle: Plant, movements: (typeof allRules)[number]) {
    const { tallyman, devices } = bundle;
    this.#plant = bundle;
    this.#processor = new TagReadProcessor({ database: tallyman.database, devices, movements });
    this.#replay = new Replay({
      source: new TagReadSource(tallyman.database),
      processor: this.#processor,
      checkpoints: tallyman.checkpoints,
      exclusively: (lockId, work, more) => tallyman.exclusively(lockId, work, more),
    });
  }

  async take({ reads, path, fate }: Batch): Promise<void> {
    const { database } = this.#plant.tallyman;
    if (fate === 'dies before its commit') {
      const examined = await this.#processor.examine(reads);
      const dying = database.transaction(async (tx) => {
        await this.#processor.processWithin(tx, examined, { thorough: true });
        throw new Error('killed');
      });
      await expect(dying).rejects.toThrow('killed');
    }
    for (let times = fate === 'dies after its commit' ? 2 : 1; times > 0; times -= 1) {
      if (path === 'MQTT') await this.#processor.processTagReads(reads);
      else if (path === 'redrive') {
        const examined = await this.#processor.examine(reads);
        await database.transaction((tx) => this.#processor.processWithin(tx, examined, { thorough: true }));
      } else {
        await collect(database, reads);
        await this.#replay.replay({ waitMs: 60_000 });
      }
    }
  }
}

function batchesOf(reads: readonly TagRead[], { keys, batches }: Journey): Batch[] {
  const shuffled = reads
    .map((one, i) => ({ one, key: keys[i] ?? 0 }))
    .toSorted((a, b) => a.key - b.key)
    .map(({ one }) => one);
  const result: Batch[] = [];
  for (const { size, ...batch } of batches) {
    const own = shuffled.splice(0, size);
    if (own.length > 0) result.push({ ...batch, reads: own });
  }
  return result;
}

/** Movements as whoever follows the events knows them. */
async function followed({ tallyman }: Plant): Promise<Map<string, object>> {
  const known = new Map<string, object>();
  for (let after = '0'; ; ) {
    const { events, cursor } = await readEvents(tallyman.database, after, {}, 1000);
    for (const { type, payload, occurredAt } of events) {
      const told = payload as {
        movement_id: string;
        is: { from_location_id: string | null; to_location_id: string; at: string } | null;
      };
      if (type === 'rfid.movement') {
        const { from_location_id, to_location_id } = payload as {
          from_location_id: string | null;
          to_location_id: string;
        };
        expect(known.has(told.movement_id)).toBe(false);
        known.set(told.movement_id, { from: from_location_id, to: to_location_id, at: occurredAt.getTime() });
      }
      if (type !== 'rfid.movement.corrected') continue;
      if (told.is === null) known.delete(told.movement_id);
      else
        known.set(told.movement_id, {
          from: told.is.from_location_id,
          to: told.is.to_location_id,
          at: Date.parse(told.is.at),
        });
    }
    if (events.length === 0) return known;
    after = cursor;
  }
}

test('RFID-6, RFID-7: any permutation, batches, instances, paths and crashes of the same reads: the books of one pass over the sorted reads', {
  timeout: 300_000,
}, async () => {
  const bundle = await plant(['A', 'B', 'C']);
  const { tallyman, at, rows } = bundle;
  await tallyman.database.query(
    `insert into iot.devices (tenant_id, serial, name, location_id) values ('default', 'A2', 'A2', $1)`,
    [at.A],
  );
  bundle.devices.drop();
  const fleets = allRules.map((rules) => [1, 2, 3].map(() => new Instance(bundle, rules)));
  let baskets = 0;
  await fc.assert(
    fc.asyncProperty(sightings, journeys, fc.nat(allRules.length - 1), async (seen, journey, n) => {
      const first = baskets;
      baskets += 2;
      const reads = seen.map(({ basket, device, seconds }) =>
        read(device, seconds, { epc: tag(first + basket) }),
      );
      const fleet = fleets[n] as Instance[];
      let under: Promise<void>[] = [];
      for (const batch of batchesOf(reads, journey)) {
        under.push((fleet[batch.instance] as Instance).take(batch));
        if (batch.atOnce) continue;
        await Promise.all(under);
        under = [];
      }
      await Promise.all(under);
      const { windowMs, minimumStayMs } = allRules[n] as (typeof allRules)[number];
      const rules = { window: windowMs * 1000, minimumStay: minimumStayMs * 1000 };
      expect(await booksOf(tallyman.database, [...new Set(reads.map(({ epc }) => epc))])).toEqual(
        expectedBooks(reads, rules, places),
      );
    }),
    {
      numRuns: Number(process.env.RFID_ORDER_RUNS ?? 60),
      endOnFailure: process.env.RFID_ORDER_RUNS === undefined,
    },
  );
  // RFID-16: whoever follows the events has the same books.
  const kept = await rows<{ id: string; from: string | null; to: string; at: Date }>(
    'select id, from_location_id as "from", to_location_id as "to", event_timestamp as at from rfid.movements',
  );
  expect(await followed(bundle)).toEqual(
    new Map(kept.map(({ id, from, to, at: when }) => [id, { from, to, at: when.getTime() }])),
  );
  expect(
    await rows(
      `select count(*)::int as n from tallyman_events.events where event_type = 'rfid.basket.created'`,
    ),
  ).toEqual(await rows('select count(*)::int as n from rfid.baskets'));
});
