/** A process that only enqueues: opens the store a second time, enqueues into it, and reports what it did. */
import type { Task } from './measure/bench.ts';
import { writeInTransactions, writePaced } from './measure/lane-hot.ts';
import { enqueueSpread } from './measure/queues.ts';
import { enqueueSlowly } from './measure/wakeup.ts';
import type { OpenSystem } from './system.ts';
import { systemNamed } from './systems/index.ts';
import type { Workload } from './workloads.ts';

const ENQUEUE: Partial<Record<Workload, (open: OpenSystem, task: Task) => Promise<unknown>>> = {
  'wakeup-p50-remote': (open, { size }) => enqueueSlowly(open, size.jobs),
  'lane-hot': writeInTransactions,
  'lane-hot-paced': writePaced,
  'queues-1x4': enqueueSpread,
  'queues-8x4': enqueueSpread,
};

process.once('disconnect', () => process.exit(0));
process.once('message', async (task: Task) => {
  const enqueue = ENQUEUE[task.workload];
  if (enqueue === undefined) throw new Error(`${task.workload} does not enqueue from another process.`);
  const system = await systemNamed(task.system, task.baseline);
  const open = await system.open(task.url, task.workload);
  process.send?.(await enqueue(open, task));
});
