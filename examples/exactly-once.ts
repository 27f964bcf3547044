// An effect that happens once, although the job runs twice: the effect and "this job is done" are one commit.
// DATABASE_URL=postgres://… node examples/exactly-once.ts
import { once } from 'node:events';
import { defineKind, Tallyman } from '../src/index.ts'; // in your project: from 'tallyman'

const tallyman = await Tallyman.open({ databaseUrl: process.env.DATABASE_URL ?? '', migrate: true });
await tallyman.database.query(
  `create table if not exists example_stock (sku text primary key, pieces integer not null);
   insert into example_stock values ('BOLT-M8', 0) on conflict (sku) do update set pieces = 0`,
);

let runs = 0;
const receive = defineKind<{ sku: string; pieces: number }>({
  name: 'exactly-once.receive',
  retry: { backoff: () => 50 },
  handler: async ({ sku, pieces }, job) => {
    runs += 1;
    await job.commit(async (tx) => {
      await tx.query('update example_stock set pieces = pieces + $2 where sku = $1', [sku, pieces]);
      // The process could as well die here. Nothing of this run remains, and the job is still to be done.
      if (job.attempt === 1) throw new Error('the power went');
    });
  },
});

const worker = tallyman.worker({ kinds: [receive] });
await worker.start();
// The same delivery note comes in twice: the dedupe key makes it one job.
for (let i = 0; i < 2; i += 1)
  await tallyman.enqueue(receive, { sku: 'BOLT-M8', pieces: 100 }, { dedupeKey: `note-${process.pid}` });
await once(worker.events, 'succeeded');

const { rows } = await tallyman.database.query(`select pieces from example_stock where sku = 'BOLT-M8'`);
console.log(`ran ${runs} times, ${rows[0]?.pieces} pieces in stock`);
await tallyman.close();
