import { setTimeout as sleep } from 'node:timers/promises';
import { percentile } from '../../../lib/figures.ts';
import type { OpenSystem } from '../system.ts';
import { BrokenPromise } from '../verify.ts';
import { queuesOf } from '../workloads.ts';
import { type Bench, finished, type Measured, settle, type Task } from './bench.ts';
import { enqueueElsewhere, startWorker } from './processes.ts';
import { enqueueSlowly } from './wakeup.ts';

const PROCESSES = 4;
/** A second's worth: every process has seen most queues by then. */
const WARM_UP = 40;

/** From the call of enqueue to the start of the handler, with four worker processes and a trickle of jobs. */
export async function queues(bench: Bench): Promise<Measured> {
  const { task, tally } = bench;
  const startedAt: number[] = [];
  const perProcess = new Array<number>(PROCESSES).fill(0);
  const workers = await Promise.all(
    perProcess.map((_, process) =>
      startWorker(task, false, (start) => {
        startedAt[start.index] = start.at;
        perProcess[process] = (perProcess[process] ?? 0) + 1;
        tally.mark(start);
      }),
    ),
  );
  await settle(bench);
  await sleep(1000);
  const work = async () => {
    const enqueuedAt = await enqueueElsewhere<number[]>(task);
    await finished(bench);
    return enqueuedAt;
  };
  const enqueuedAt = await Promise.race([work(), ...workers.map(({ failure }) => failure)]);
  // Leaves a moment for a job to wrongly run again.
  await sleep(50);
  for (const worker of workers) worker.kill();
  tally.verify();
  const samples = enqueuedAt.map((from, index) => (startedAt[index] ?? Number.NaN) - from).slice(WARM_UP);
  if (samples.some(Number.isNaN)) throw new BrokenPromise('a job was counted that no process has started.');
  return {
    value: percentile(samples, 0.5),
    extra: {
      p95: percentile(samples, 0.95),
      p99: percentile(samples, 0.99),
      samples: samples.length,
      busiest: Math.max(...perProcess) / enqueuedAt.length,
    },
  };
}

/** About forty jobs a second, round the queues. */
export function enqueueSpread(open: OpenSystem, { size, workload }: Task): Promise<number[]> {
  const names = queuesOf(workload);
  return enqueueSlowly(open, size.jobs, {
    gap: () => 15 + Math.random() * 20,
    payload: (index) => ({ index, queue: names[index % names.length] as string }),
  });
}
