// One kind of job, enqueued and run.   DATABASE_URL=postgres://… node examples/quickstart.ts
import { once } from 'node:events';
import { z } from 'zod';
import { defineKind, Tallyman } from '../src/index.ts'; // in your project: from 'tallyman'

const printLabel = defineKind({
  name: 'quickstart.print-label',
  schema: z.object({ sku: z.string(), copies: z.int().positive() }),
  retry: { maxAttempts: 3, backoff: () => 100 },
  handler: ({ sku, copies }, job) => {
    if (job.attempt === 1) throw new Error('out of paper');
    console.log(`printed ${copies} × ${sku} in attempt ${job.attempt}`);
  },
});

const tallyman = await Tallyman.open({ databaseUrl: process.env.DATABASE_URL ?? '', migrate: true });
const worker = tallyman.worker({ kinds: [printLabel] });
await worker.start();

const { id } = await tallyman.enqueue(printLabel, { sku: 'PALLET-WRAP', copies: 2 });
await once(worker.events, 'succeeded');
console.log(`job is ${(await tallyman.jobs.get(id))?.status}`);

// What does not fit the schema is refused before anything is written.
await tallyman
  .enqueue(printLabel, { sku: 'PALLET-WRAP', copies: -1 })
  .catch((error) => console.log(error.message));
await tallyman.close();
