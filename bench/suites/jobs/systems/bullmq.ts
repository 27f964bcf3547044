import { setTimeout as sleep } from 'node:timers/promises';
import { Queue, Worker } from 'bullmq';
import { CONCURRENCY, chunks, type Handler, type OpenSystem, type Payload, type System } from '../system.ts';

const QUEUE = 'bench';
const YEAR = 365 * 24 * 3600 * 1000;

async function open(url: string): Promise<OpenSystem> {
  const { hostname: host, port } = new URL(url);
  const connection = { host, port: Number(port), maxRetriesPerRequest: null };
  // Finished jobs are removed, as the others do: less to write, so its best.
  const queue = new Queue<Payload>(QUEUE, { connection, defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  const startWorker = async (handler: Handler) => {
    const worker = new Worker<Payload>(QUEUE, async (job) => handler(job.data), {
      connection,
      concurrency: CONCURRENCY,
    });
    worker.on('error', (error) => console.error('bullmq:', error));
    await worker.waitUntilReady();
    return worker;
  };
  const addMany = async (payloads: readonly Payload[], opts: { delay?: number }) => {
    await queue.addBulk(payloads.map((data) => ({ name: QUEUE, data, opts })));
  };
  return {
    async enqueue(payload) {
      await queue.add(QUEUE, payload);
    },
    enqueueMany: (payloads) => addMany(payloads, {}),
    async work(handler) {
      const worker = await startWorker(handler);
      return () => worker.close();
    },
    unfinished: () => queue.getJobCountByTypes('active', 'waiting', 'prioritized'),
    async litter(dead, future) {
      const many = (count: number) => Array.from({ length: count }, () => ({ index: -1 }));
      for (const count of chunks(dead)) await addMany(many(count), {});
      const killer = await startWorker(() => Promise.reject(new Error('litter')));
      while ((await queue.getFailedCount()) < dead) await sleep(50);
      await killer.close();
      for (const count of chunks(future)) await addMany(many(count), { delay: YEAR });
    },
    close: () => queue.close(),
  };
}

export const bullmqEverysec: System = {
  store: 'redis-everysec',
  bulkChunk: 1_000,
  lacks(workload) {
    if (workload === 'lanes') return 'order per key (groups) only in BullMQ Pro';
    return workload === 'drain-held' ? 'Redis has no transactions to hold open' : undefined;
  },
  open,
};

export const bullmqAlways: System = {
  ...bullmqEverysec,
  store: 'redis-always',
};
