// Strict order per key: the scans of one dock door run one after another, also through a retry; doors run side by side.
// DATABASE_URL=postgres://… node examples/lanes.ts
import { on } from 'node:events';
import { defineKind, Tallyman } from '../src/index.ts'; // in your project: from 'tallyman'

interface Scan {
  readonly door: string;
  readonly pallet: number;
}

const seen: Record<string, number[]> = { north: [], south: [] };
const scan = defineKind<Scan>({
  name: 'lanes.scan',
  lane: { key: ({ door }) => `door:${door}` },
  retry: { backoff: () => 50 },
  handler: ({ door, pallet }, job) => {
    // Pallet 3 fails at first. It keeps the head of its lane: 4 and 5 wait behind it.
    if (pallet === 3 && job.attempt === 1) throw new Error('unreadable');
    seen[door]?.push(pallet);
  },
});

const tallyman = await Tallyman.open({ databaseUrl: process.env.DATABASE_URL ?? '', migrate: true });
const worker = tallyman.worker({ kinds: [scan], concurrency: 8 });
const succeeded = on(worker.events, 'succeeded');
await worker.start();

const pallets = [1, 2, 3, 4, 5];
await tallyman.enqueueMany(
  scan,
  pallets.flatMap((pallet) => ['north', 'south'].map((door) => ({ payload: { door, pallet } }))),
);
for (let done = 0; done < pallets.length * 2; done += 1) await succeeded.next();
for (const [door, order] of Object.entries(seen)) console.log(`${door}: ${order.join(' ')}`);
await tallyman.close();
