import { setTimeout as sleep } from 'node:timers/promises';
import { Queue, Worker } from 'bullmq';
import { CONCURRENCY, chunks, type Handler, type OpenSystem, type Payload, type System } from '../system.ts';
import { hasLanes, queuesOf, type Workload } from '../workloads.ts';

const QUEUE = 'bench';
const YEAR = 365 * 24 * 3600 * 1000;

async function open(url: string, workload: Workload): Promise<OpenSystem> {
  const { hostname: host, port } = new URL(url);
  const connection = { host, port: Number(port), maxRetriesPerRequest: null };
  const names = queuesOf(workload).length > 0 ? queuesOf(workload) : [QUEUE];
  // Finished jobs are removed, as the others do: less to write, so its best.
  const queues = new Map(
    names.map((name) => [
      name,
      new Queue<Payload>(name, { connection, defaultJobOptions: { removeOnComplete: true } }),
    ]),
  );
  await Promise.all([...queues.values()].map((queue) => queue.waitUntilReady()));
  const queueOf = (name: string) => {
    const queue = queues.get(name);
    if (queue === undefined) throw new Error(`No queue "${name}" in ${workload}.`);
    return queue;
  };
  const queue = queueOf(names[0] ?? QUEUE);
  const startWorker = async (name: string, handler: Handler) => {
    const worker = new Worker<Payload>(name, async (job) => handler(job.data), {
      connection,
      // A queue with one consumer is the only lane there is.
      concurrency: hasLanes(workload) ? 1 : CONCURRENCY,
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
      await queueOf(payload.queue ?? QUEUE).add(QUEUE, payload);
    },
    enqueueMany: (payloads) => addMany(payloads, {}),
    async work(handler) {
      const workers = await Promise.all(names.map((name) => startWorker(name, handler)));
      return async () => {
        await Promise.all(workers.map((worker) => worker.close()));
      };
    },
    async unfinished() {
      const counts = [...queues.values()].map((queue) =>
        queue.getJobCountByTypes('active', 'waiting', 'prioritized'),
      );
      return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
    },
    async litter(dead, future) {
      const many = (count: number) => Array.from({ length: count }, () => ({ index: -1 }));
      for (const count of chunks(dead)) await addMany(many(count), {});
      const killer = await startWorker(QUEUE, () => Promise.reject(new Error('litter')));
      while ((await queue.getFailedCount()) < dead) await sleep(50);
      await killer.close();
      for (const count of chunks(future)) await addMany(many(count), { delay: YEAR });
    },
    async close() {
      await Promise.all([...queues.values()].map((queue) => queue.close()));
    },
  };
}

export const bullmqEverysec: System = {
  store: 'redis-everysec',
  bulkChunk: 1_000,
  lacks(workload) {
    if (workload === 'lanes') return 'order per key (groups) only in BullMQ Pro';
    if (workload === 'lane-hot') return 'no enqueue in a transaction';
    if (workload === 'effects') return 'keeps its jobs in another store than the rows';
    return workload === 'drain-held' ? 'Redis has no transactions to hold open' : undefined;
  },
  open,
};

export const bullmqAlways: System = {
  ...bullmqEverysec,
  store: 'redis-always',
};
