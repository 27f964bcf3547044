import type { System } from '../system.ts';
import { Tally } from '../verify.ts';
import type { Workload } from '../workloads.ts';
import type { Bench, Measured, Task } from './bench.ts';
import { drain, drainHeld } from './drain.ts';
import { effects } from './effects.ts';
import { enqueueBulk, enqueueOne } from './enqueue.ts';
import { laneHot } from './lane-hot.ts';
import { lanes } from './lanes.ts';
import { queues } from './queues.ts';
import { takeover } from './takeover.ts';
import { wakeup } from './wakeup.ts';

const MEASURES: Record<Workload, (bench: Bench) => Promise<Measured>> = {
  'enqueue-one': enqueueOne,
  'enqueue-bulk': enqueueBulk,
  'drain-20k': drain,
  'drain-100k': drain,
  lanes,
  'lane-deep': lanes,
  'lane-hot': laneHot,
  'lane-hot-paced': laneHot,
  'wakeup-p50': (bench) => wakeup(bench, 'here'),
  'wakeup-p50-remote': (bench) => wakeup(bench, 'elsewhere'),
  'queues-1x4': queues,
  'queues-8x4': queues,
  'drain-littered': drain,
  'drain-held': drainHeld,
  effects,
  takeover,
};

/** Opens the system on its empty store and runs one workload on it, verified. */
export async function measure(system: System, task: Task, report: (text: string) => void): Promise<Measured> {
  const open = await system.open(task.url, task.workload);
  const tally = new Tally(task.size.jobs);
  const reporting = setInterval(() => report(`${tally.count} of ${tally.expected} jobs had run`), 1000);
  try {
    return await MEASURES[task.workload]({ system, open, size: task.size, task, tally });
  } finally {
    clearInterval(reporting);
    await open.close();
  }
}
