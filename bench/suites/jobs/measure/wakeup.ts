import { setTimeout as sleep } from 'node:timers/promises';
import { percentile } from '../../../lib/figures.ts';
import type { OpenSystem, Payload } from '../system.ts';
import { type Bench, finished, type Measured, settle, stopAndVerify } from './bench.ts';
import { now } from './clock.ts';
import { enqueueElsewhere } from './processes.ts';

/** Samples that only warm the system up: statements prepared, code compiled. */
const WARM_UP = 20;

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
    enqueuer === 'here'
      ? await enqueueSlowly(bench.open, bench.size.jobs)
      : await enqueueElsewhere<number[]>(bench.task);
  await finished(bench);
  await stopAndVerify(bench, stop);
  const samples = enqueuedAt.map((from, index) => (startedAt[index] ?? Number.NaN) - from).slice(WARM_UP);
  return {
    value: percentile(samples, 0.5),
    extra: { p95: percentile(samples, 0.95), p99: percentile(samples, 0.99), samples: samples.length },
  };
}

interface Trickle {
  /** Milliseconds to wait before each enqueue. */
  readonly gap: () => number;
  readonly payload: (index: number) => Payload;
}

/** Enqueues one job at a time at random gaps; returns when each was asked for. */
export async function enqueueSlowly(
  system: OpenSystem,
  jobs: number,
  { gap, payload }: Trickle = { gap: () => 20 + Math.random() * 30, payload: (index) => ({ index }) },
): Promise<number[]> {
  const enqueuedAt: number[] = [];
  for (let index = 0; index < jobs; index += 1) {
    await sleep(gap());
    enqueuedAt.push(now());
    await system.enqueue(payload(index));
  }
  return enqueuedAt;
}
