// Your row and the job that follows from it, in your own transaction: both or neither. No outbox table, no relay.
// DATABASE_URL=postgres://… node examples/outbox-in-your-transaction.ts
import { once } from 'node:events';
import pg from 'pg';
import { defineKind, Tallyman } from '../src/index.ts'; // in your project: from 'tallyman'

const databaseUrl = process.env.DATABASE_URL ?? '';
const notify = defineKind<{ order: string }>({
  name: 'outbox.notify',
  handler: ({ order }) => console.log(`told the customer about order ${order}`),
});

const tallyman = await Tallyman.open({ databaseUrl, migrate: true });
const yours = new pg.Client(databaseUrl); // any client that runs SQL will do
await yours.connect();
await yours.query('create table if not exists example_orders (name text)');

async function placeOrder(order: string, paid: boolean): Promise<void> {
  await yours.query('begin');
  await yours.query('insert into example_orders values ($1)', [order]);
  await tallyman.enqueue(notify, { order }, { tx: yours });
  await yours.query(paid ? 'commit' : 'rollback');
}

await placeOrder('A-1', false); // rolled back: no row, no job
await placeOrder('A-2', true);

const worker = tallyman.worker({ kinds: [notify] });
const told = once(worker.events, 'succeeded');
await worker.start();
await told;
const { items } = await tallyman.jobs.list({ kind: notify.name, status: 'QUEUED' });
console.log(`${items.length} jobs left`);
await yours.end();
await tallyman.close();
