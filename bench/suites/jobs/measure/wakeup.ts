import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { percentile } from '../../../lib/figures.ts';
import type { OpenSystem } from '../system.ts';
import { type Bench, finished, type Measured, settle, stopAndVerify } from './bench.ts';

/** Samples that only warm the system up: statements prepared, code compiled. */
const WARM_UP = 20;

/** The monotonic clock in milliseconds; unlike `performance.now()` it is the same in all processes. */
const now = () => Number(process.hrtime.bigint()) / 1e6;

/** From the call of enqueue to the start of the handler, one job at a time on an idle system. */
export async function wakeup(bench: Bench, enqueuer: 'here' | 'elsewhere'): Promise<Measured> {
  const startedAt: number[] = [];
  await settle(bench);
  const stop = await bench.open.work((payload) => {
    startedAt[payload.index] = now();
    bench.tally.mark(payload);
  });
  await sleep(500);
  const enqueuedAt =
    enqueuer === 'here' ? await enqueueSlowly(bench.open, bench.size.jobs) : await enqueueElsewhere(bench);
  await finished(bench);
  await stopAndVerify(bench, stop);
  const samples = enqueuedAt.map((from, index) => (startedAt[index] ?? Number.NaN) - from).slice(WARM_UP);
  return {
    value: percentile(samples, 0.5),
    extra: { p95: percentile(samples, 0.95), p99: percentile(samples, 0.99), samples: samples.length },
  };
}

/** Enqueues one job at a time at random gaps; returns when each was asked for. */
export async function enqueueSlowly(system: OpenSystem, jobs: number): Promise<number[]> {
  const enqueuedAt: number[] = [];
  for (let index = 0; index < jobs; index += 1) {
    await sleep(20 + Math.random() * 30);
    enqueuedAt.push(now());
    await system.enqueue({ index });
  }
  return enqueuedAt;
}

async function enqueueElsewhere({ task }: Bench): Promise<number[]> {
  const child = fork(join(import.meta.dirname, '..', 'enqueuer.ts'), { stdio: ['ignore', 2, 2, 'ipc'] });
  const answer = once(child, 'message') as Promise<[number[]]>;
  const failure = once(child, 'exit').then(([code]) => {
    throw new Error(`The enqueuing process ended with code ${code}.`);
  });
  child.send(task);
  const [enqueuedAt] = await Promise.race([answer, failure]);
  failure.catch(() => {});
  child.disconnect();
  return enqueuedAt;
}
