import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../engine/errors.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import type { Tallyman } from '../engine/tallyman.ts';
import { recordOrders, takeNumbers } from './books.ts';
import { type Order, plan, printLabel, type Scan, scanPallet } from './plant.ts';
import type { Random } from './random.ts';

const tickMs = 100;
/** More than this waiting: the plant is slower than its suppliers, who are held up. */
const mostWaiting = 20_000;

export interface IntakeOptions {
  readonly tallyman: Tallyman;
  readonly booking: AnyKind;
  readonly random: Random;
  readonly ratePerSecond: number;
  readonly waiting: () => number;
  readonly signal: AbortSignal;
}

/** Enqueues at a steady rate until the signal fires. Whatever happens, an order is in the books and in the queue or in neither. */
export async function takeIn(options: IntakeOptions): Promise<void> {
  const { tallyman, random, ratePerSecond, signal } = options;
  let owed = 0;
  for (let last = performance.now(); !signal.aborted; ) {
    await sleep(tickMs, undefined, { signal }).catch(() => {});
    const now = performance.now();
    // After a pause (a laptop that slept) nothing is made up for.
    owed += Math.min(now - last, 1000) * (ratePerSecond / 1000);
    last = now;
    const orders = Array.from({ length: Math.floor(owed) }, () => plan(random));
    owed -= orders.length;
    if (orders.length === 0 || signal.aborted || options.waiting() > mostWaiting) continue;
    try {
      await enqueue(options, orders);
    } catch (error) {
      tallyman.database.logger.warn(
        { orders: orders.length, reason: messageOf(error) },
        'orders were not taken in',
      );
    }
  }
}

async function enqueue({ tallyman, booking }: IntakeOptions, orders: readonly Order[]): Promise<void> {
  await tallyman.database.transaction(async (tx) => {
    const scans = orders.filter((order) => order.kind === 'scan').map(({ payload }) => payload);
    const perDoor = new Map<string, number>();
    for (const { door } of scans) perDoor.set(door, (perDoor.get(door) ?? 0) + 1);
    const next = new Map(await takeNumbers(tx, perDoor));
    const numbered = scans.map((scan): { payload: Scan } => {
      const number = next.get(scan.door) ?? 0;
      next.set(scan.door, number + 1);
      return { payload: { ...scan, number } };
    });
    const labels = orders.filter((order) => order.kind === 'label').map(({ payload }) => ({ payload }));
    const bookings = orders.filter((order) => order.kind === 'booking').map(({ payload }) => ({ payload }));
    const jobs = [
      ...(await tallyman.enqueueMany(scanPallet, numbered, { tx })),
      ...(await tallyman.enqueueMany(printLabel, labels, { tx })),
      ...(await tallyman.enqueueMany(booking, bookings, { tx })),
    ];
    await recordOrders(
      tx,
      jobs.map(({ id }) => id),
    );
  });
}
