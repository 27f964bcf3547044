import { CALLERS } from '../system.ts';
import { type Bench, enqueueAll, finished, type Measured, settle, stopAndVerify } from './bench.ts';

/** Sixteen callers, each awaiting its own enqueue before the next. */
export async function enqueueOne(bench: Bench): Promise<Measured> {
  const { open, size } = bench;
  await settle(bench);
  let next = 0;
  const started = performance.now();
  const caller = async () => {
    while (next < size.jobs) {
      const index = next++;
      await open.enqueue({ index });
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  const seconds = (performance.now() - started) / 1000;
  await runAll(bench);
  return { value: size.jobs / seconds };
}

/** All jobs in chunks, one call after another. */
export async function enqueueBulk(bench: Bench): Promise<Measured> {
  await settle(bench);
  const started = performance.now();
  await enqueueAll(bench);
  const seconds = (performance.now() - started) / 1000;
  await runAll(bench);
  return { value: bench.size.jobs / seconds };
}

/** An enqueue counts only if its job is there: runs them all, off the clock. */
async function runAll(bench: Bench): Promise<void> {
  const stop = await bench.open.work(bench.tally.mark);
  await finished(bench);
  await stopAndVerify(bench, stop);
}
