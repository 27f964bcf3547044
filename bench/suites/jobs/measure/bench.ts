import { setTimeout as sleep } from 'node:timers/promises';
import { withClient } from '../../../lib/postgres.ts';
import { compact } from '../../../lib/redis.ts';
import type { OpenSystem, Payload, System } from '../system.ts';
import type { SystemName } from '../systems/names.ts';
import type { Tally } from '../verify.ts';
import type { Size, Workload } from '../workloads.ts';

/** What a measuring process is started with. */
export interface Task {
  readonly system: SystemName;
  readonly workload: Workload;
  readonly size: Size;
  /** Address of the empty store. */
  readonly url: string;
  /** The checkout that the systems `tallyman-before…` import. */
  readonly baseline: string | undefined;
}

/** One measured value, and what else was seen. */
export interface Measured {
  readonly value: number;
  readonly extra?: Readonly<Record<string, number>>;
}

/** What a workload is given to measure with. */
export interface Bench {
  readonly system: System;
  readonly open: OpenSystem;
  readonly size: Size;
  readonly task: Task;
  readonly tally: Tally;
}

/** Enqueues all jobs of a run in chunks of what suits the system. */
export async function enqueueAll({ system, open, size }: Bench): Promise<void> {
  const chunk = size.lanes === 0 ? system.bulkChunk : Math.min(system.bulkChunk, size.lanes);
  for (let from = 0; from < size.jobs; from += chunk) {
    await open.enqueueMany(payloads(from, Math.min(from + chunk, size.jobs), size.lanes));
  }
}

/** Jobs go round the lanes, so a chunk no longer than the number of lanes holds each at most once. */
function payloads(from: number, to: number, laneCount: number): Payload[] {
  return Array.from({ length: to - from }, (_, offset) => {
    const index = from + offset;
    return laneCount === 0 ? { index } : { index, lane: `lane-${index % laneCount}` };
  });
}

/**
 * Brings the store to rest before the clock starts: statistics are fresh and the enqueueing's dirty pages
 * are written, so that a run pays for its own work and not for what went before it.
 */
export async function settle({ system, task }: Bench): Promise<void> {
  if (system.store !== 'postgres') return compact(task.url);
  await withClient(task.url, async (client) => {
    await client.query('vacuum analyze');
    await client.query('checkpoint');
  });
}

/** Waits until every job has run and the store says so too; returns the moment on the monotonic clock. */
export async function finished({ open, tally }: Bench): Promise<number> {
  await tally.complete;
  for (;;) {
    // The moment of asking, not of the answer: counting a large table is the bench's cost, not the system's.
    const asked = performance.now();
    if ((await open.unfinished()) === 0) return asked;
    await sleep(1);
  }
}

/** Leaves a moment for a job to wrongly run again, then stops the worker and checks. */
export async function stopAndVerify({ tally }: Bench, stop: () => Promise<void>): Promise<void> {
  await sleep(30);
  await stop();
  tally.verify();
}
