import { setTimeout as sleep } from 'node:timers/promises';
import { percentile } from '../../../lib/figures.ts';
import { BrokenPromise } from '../verify.ts';
import type { Bench, Measured } from './bench.ts';
import { type Start, startWorker, type WorkerProcess } from './processes.ts';

/** Jobs that a worker holds when it is killed. */
const HELD = 10;
/** After this a job counts as lost, in milliseconds. */
const PATIENCE = 120_000;
/**
 * After PostgreSQL has started, Tallyman gives all workers 5 s instead of 0.7 s to reconnect. Each measurement has a new
 * server, so it waits until that is over: a kill is measured on a server that has been up for a while.
 */
const SETTLED = 15_000;

/**
 * From the SIGKILL of a worker until each job it was running starts again in another process that was up already. The
 * heir of one kill is the victim of the next.
 */
export async function takeover(bench: Bench): Promise<Measured> {
  const { open, size, task, tally } = bench;
  const waits: number[] = [];
  await sleep(SETTLED);
  let held = new Set<number>();
  let victim = await startWorker(task, true, ({ index }) => held.add(index));
  for (let first = 0; first < size.jobs; first += HELD) {
    const jobs = Array.from({ length: HELD }, (_, offset) => first + offset);
    for (const index of jobs) await open.enqueue({ index });
    await until(
      () => jobs.every((index) => held.has(index)),
      victim,
      () => 'the jobs did not start',
    );

    const again: Start[] = [];
    const nextHeld = new Set<number>();
    const heir = await startWorker(task, false, (start) => {
      // After the handover the heir holds the next jobs; those are not starts after a kill.
      if (start.index >= first + HELD) return void nextHeld.add(start.index);
      again.push(start);
      tally.mark(start);
    });
    // At random, so that the kills do not all fall at the same moment between two of the heir's checks.
    await sleep(1000 + Math.random() * 5000);
    if (again.length > 0)
      throw new BrokenPromise(`${again.length} jobs started elsewhere while their worker was alive.`);
    const killed = victim.kill();
    await until(
      () => again.length >= HELD,
      heir,
      () => {
        return `after a kill ${again.length} of ${HELD} jobs had started again within ${PATIENCE / 1000} s`;
      },
    );
    waits.push(...again.map(({ at }) => (at - killed) / 1000));
    for (const deadline = Date.now() + 10_000; (await open.unfinished()) > 0; await sleep(20))
      if (Date.now() > deadline) throw new BrokenPromise('jobs that had run again were not finished.');
    await heir.hold();
    victim = heir;
    held = nextHeld;
  }
  victim.kill();
  tally.verify();
  return {
    value: percentile(waits, 0.5),
    extra: { p99: percentile(waits, 0.99), max: Math.max(...waits), kills: size.jobs / HELD },
  };
}

async function until(done: () => boolean, worker: WorkerProcess, otherwise: () => string): Promise<void> {
  for (const deadline = Date.now() + PATIENCE; !done(); ) {
    if (Date.now() > deadline) throw new BrokenPromise(otherwise());
    await Promise.race([sleep(10), worker.failure]);
  }
}
