import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  audit,
  balances,
  recordEffect,
  recordOrders,
  setUpBooks,
  takeNumbers,
} from '../../src/demo/books.ts';
import { takeIn } from '../../src/demo/intake.ts';
import { bookTruck, type Order, plan } from '../../src/demo/plant.ts';
import { Random } from '../../src/demo/random.ts';
import type { Tallyman } from '../../src/index.ts';
import { openTallyman, ship, work } from '../cli/support.ts';
import { type FreshDatabase, freshDatabase } from '../support/postgres.ts';

let fresh: FreshDatabase;
let tallyman: Tallyman;

beforeEach(async () => {
  fresh = await freshDatabase();
  tallyman = await openTallyman(fresh.url);
  await setUpBooks(fresh.database);
});

afterEach(async () => {
  await tallyman.close();
  await fresh.drop();
});

async function order(count: number, fail?: string): Promise<string[]> {
  const payload = { parcel: 'P', ...(fail && { fail }) };
  const jobs = await tallyman.enqueueMany(
    ship,
    Array.from({ length: count }, () => ({ payload })),
  );
  const ids = jobs.map(({ id }) => id);
  await recordOrders(fresh.database, ids);
  return ids;
}

/** As ctx.commit does it: the effect, and the job is gone. */
async function finish(job: string, lane?: string, number?: number): Promise<void> {
  await recordEffect(fresh.database, {
    job,
    ...(lane !== undefined && { lane }),
    ...(number !== undefined && { number }),
  });
  await fresh.database.query('delete from tallyman.jobs where id = $1', [job]);
}

test('what is done once balances', async () => {
  const [a = '', b = ''] = await order(3);
  await finish(a);
  const balance = await audit(fresh.database);
  expect(balance).toMatchObject({ enqueued: 3, done: 1, queued: 2, twice: 0, lost: 0 });
  expect(balances(balance)).toBe(true);
  await finish(b);
  expect(await audit(fresh.database)).toMatchObject({ done: 2, queued: 1 });
});

test('an effect that happens twice is found, in one audit or a later one', async () => {
  const [a = '', b = ''] = await order(2);
  await finish(a);
  await finish(a);
  const first = await audit(fresh.database);
  expect(first).toMatchObject({ done: 1, twice: 1 });
  expect(balances(first)).toBe(false);
  await finish(b);
  await audit(fresh.database);
  await finish(b);
  expect(await audit(fresh.database)).toMatchObject({ done: 2, twice: 2 });
});

test('a job that is nowhere is found', async () => {
  const [a] = await order(2);
  await fresh.database.query('delete from tallyman.jobs where id = $1', [a]);
  const balance = await audit(fresh.database);
  expect(balance).toMatchObject({ queued: 1, lost: 1 });
  expect(balances(balance)).toBe(false);
});

test('a scan out of order is found, within an audit and across two', async () => {
  const [a = '', b = '', c = '', d = ''] = await order(4);
  await finish(a, 'door-1', 2);
  await finish(b, 'door-1', 1);
  expect(await audit(fresh.database)).toMatchObject({ disordered: 1, twice: 0 });
  await finish(c, 'door-1', 3);
  await finish(d, 'door-2', 1);
  expect(await audit(fresh.database)).toMatchObject({ disordered: 1 });
  const [e = ''] = await order(1);
  await finish(e, 'door-1', 2);
  expect(await audit(fresh.database)).toMatchObject({ disordered: 2 });
});

test('dead letters count as such; one that a person discards is not lost, one that he redrives is done', async () => {
  const [a = '', b = ''] = await order(2, 'no answer');
  await work(tallyman, async () => (await tallyman.jobs.counts()).DEAD_LETTER === 2);
  expect(await audit(fresh.database)).toMatchObject({ dead: 2, lost: 0 });
  await tallyman.deadLetters.discard([a]);
  await tallyman.deadLetters.redrive(b);
  await finish(b);
  const balance = await audit(fresh.database);
  expect(balance).toMatchObject({ done: 1, dead: 0, ended: 1, lost: 0 });
  expect(balances(balance)).toBe(true);
});

test('numbers of a lane go up without gaps', async () => {
  const take = (count: number) =>
    fresh.database.transaction((tx) => takeNumbers(tx, new Map([['door-1', count]])));
  expect((await take(3)).get('door-1')).toBe(1);
  expect((await take(2)).get('door-1')).toBe(4);
  expect((await take(1)).get('door-1')).toBe(6);
});

test('an order is in the books and in the queue, or in neither', async () => {
  await fresh.database.query('alter table demo.ledger add check (enqueued = 0)');
  const stop = new AbortController();
  const booking = bookTruck(fresh.database);
  const taking = takeIn({
    tallyman,
    booking,
    random: new Random(7),
    ratePerSecond: 200,
    waiting: () => 0,
    signal: stop.signal,
  });
  setTimeout(() => stop.abort(), 600);
  await taking;
  const { rows } = await fresh.database.query(
    'select (select count(*)::integer from tallyman.jobs) as jobs, (select count(*)::integer from demo.orders) as orders',
  );
  expect(rows).toEqual([{ jobs: 0, orders: 0 }]);
});

test('the same seed plans the same work and the same trouble', () => {
  const orders = (seed: number): Order[] => {
    const random = new Random(seed);
    return Array.from({ length: 500 }, () => plan(random));
  };
  expect(orders(7)).toEqual(orders(7));
  expect(orders(7)).not.toEqual(orders(8));
  expect(new Set(orders(7).map(({ kind }) => kind)).size).toBe(3);
  expect(orders(7).some(({ payload }) => payload.trouble > 0)).toBe(true);
});
