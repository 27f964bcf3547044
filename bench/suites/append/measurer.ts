/** The process in which one run of one workload on one system is measured. */
import { setTimeout as sleep } from 'node:timers/promises';
import { serve } from '../../lib/child.ts';
import { percentile } from '../../lib/figures.ts';
import { factOf } from './facts.ts';
import { systems } from './systems/index.ts';
import type { SystemName } from './systems/names.ts';
import type { Size } from './workloads.ts';

export interface Task {
  readonly system: SystemName;
  readonly size: Size;
  readonly url: string;
}

export interface Measured {
  /** Facts a second. */
  readonly value: number;
  /** Milliseconds from call to answer. */
  readonly p50: number;
  readonly p99: number;
}

serve<Task, Measured>(async ({ system: name, size, url }, report) => {
  report('preparing');
  const system = await systems[name]({ url, size });
  let next = 0;
  let answered = 0;
  const begin = performance.now() + size.warmUpMs;
  const end = begin + size.measureMs;
  const latencies: number[] = [];
  report('measuring');
  const append = async (called: number): Promise<number> => {
    next += 1;
    await system.append(factOf(next));
    const now = performance.now();
    answered += 1;
    if (called >= begin && now < end) latencies.push(now - called);
    return now;
  };
  const caller = async (): Promise<void> => {
    for (let called = performance.now(); called < end; ) called = await append(called);
  };
  const clock = async (): Promise<void> => {
    const answers: Promise<number>[] = [];
    for (let due = performance.now(); due < end; due += 1000 / size.perSecond) {
      if (due > performance.now()) await sleep(1);
      answers.push(append(performance.now()));
    }
    await Promise.all(answers);
  };
  await Promise.all(size.callers === 0 ? [clock()] : Array.from({ length: size.callers }, caller));
  report('counting');
  const kept = await system.count();
  if (kept !== answered) throw new Error(`${answered} facts were answered for, ${kept} are there`);
  await system.stop();
  return {
    value: latencies.length / (size.measureMs / 1000),
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
  };
});
