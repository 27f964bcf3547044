import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Queryable } from '../engine/database/database.ts';
import type { JobContext } from '../engine/jobs/context.ts';
import { type AnyKind, defineKind } from '../engine/jobs/kind.ts';
import { countTry, recordEffect } from './books.ts';
import type { Random } from './random.ts';

/**
 * The plant: pallets are scanned at dock doors, in the order in which they come; labels are printed, in any order;
 * trucks are booked with a carrier whose API fails now and then, and sometimes for so long that a job is buried.
 *
 * What goes wrong is decided when the work is planned, not when it is done: the same seed makes the same trouble.
 */
export const doors = 12;

const common = {
  /** Attempts that fail before one succeeds. */
  trouble: z.int().min(0),
  workMs: z.number(),
};

const scanSchema = z.object({ door: z.string(), number: z.int(), ...common });
const labelSchema = z.object({ sku: z.string(), ...common });
const bookingSchema = z.object({ carrier: z.string(), ...common });

export type Scan = z.infer<typeof scanSchema>;
export type Label = z.infer<typeof labelSchema>;
export type Booking = z.infer<typeof bookingSchema>;

export const scanPallet = defineKind<Scan>({
  name: 'pallet.scan',
  queue: 'dock',
  priority: 1,
  schema: scanSchema,
  lane: { key: ({ door }) => door },
  retry: { maxAttempts: 50, backoff: () => 300 },
  handler: async ({ door, number, trouble, workMs }, job) => {
    await sleep(workMs);
    if (job.attempt <= trouble) throw new Error('the scanner lost the reading');
    await job.commit((tx) => recordEffect(tx, { job: job.id, lane: door, number }));
  },
});

export const printLabel = defineKind<Label>({
  name: 'label.print',
  queue: 'labels',
  schema: labelSchema,
  retry: { backoff: () => 500 },
  handler: async ({ trouble, workMs }, job) => {
    await sleep(workMs);
    if (job.attempt <= trouble) throw new Error('the printer is out of labels');
    await job.commit((tx) => recordEffect(tx, { job: job.id }));
  },
});

/** Buried after this many attempts. */
const bookingAttempts = 4;

export function bookTruck(database: Queryable): AnyKind {
  return defineKind<Booking>({
    name: 'carrier.book',
    queue: 'carriers',
    schema: bookingSchema,
    retry: { maxAttempts: bookingAttempts, backoff: (attempt) => 250 * 2 ** attempt },
    handler: async (booking, job) => {
      await sleep(booking.workMs);
      if (await carrierIsDown(database, booking, job))
        throw Object.assign(new Error(`${booking.carrier} answered 503 Service Unavailable`), {
          code: 'HTTP_503',
        });
      await job.commit((tx) => recordEffect(tx, { job: job.id }));
    },
  });
}

/** An outage ends: a dead letter that a person redrives finds the carrier well again, so tries are counted for ever. */
async function carrierIsDown(database: Queryable, { trouble }: Booking, job: JobContext): Promise<boolean> {
  if (trouble < bookingAttempts) return job.attempt <= trouble;
  return (await countTry(database, job.id)) <= trouble;
}

export type Order =
  | { readonly kind: 'scan'; readonly payload: Omit<Scan, 'number'> }
  | { readonly kind: 'label'; readonly payload: Label }
  | { readonly kind: 'booking'; readonly payload: Booking };

const carriers = ['Meridian Freight', 'Northway', 'Kestrel Logistics'];

/** What comes in next. */
export function plan(random: Random): Order {
  const share = random.next();
  if (share < 0.5) {
    const door = `door-${random.below(doors) + 1}`;
    return {
      kind: 'scan',
      payload: { door, trouble: random.chance(0.01) ? 1 : 0, workMs: 2 + random.below(15) },
    };
  }
  if (share < 0.85) {
    const sku = `SKU-${1000 + random.below(9000)}`;
    return {
      kind: 'label',
      payload: { sku, trouble: random.chance(0.01) ? 1 : 0, workMs: 5 + random.below(30) },
    };
  }
  const carrier = carriers[random.below(carriers.length)] ?? 'Northway';
  const outage = random.chance(0.04);
  const trouble = outage ? bookingAttempts : random.chance(0.15) ? 1 + random.below(2) : 0;
  return { kind: 'booking', payload: { carrier, trouble, workMs: 10 + random.below(60) } };
}
