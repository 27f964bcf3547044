/** The other process of `wakeup-p50-remote`: opens the store a second time and enqueues into it. */
import type { Task } from './measure/bench.ts';
import { enqueueSlowly } from './measure/wakeup.ts';
import { systemNamed } from './systems/index.ts';

process.once('disconnect', () => process.exit(0));
process.once('message', async (task: Task) => {
  const system = await systemNamed(task.system);
  const open = await system.open(task.url, task.workload);
  process.send?.(await enqueueSlowly(open, task.size.jobs));
});
