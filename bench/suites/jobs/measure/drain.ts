import { withClient } from '../../../lib/postgres.ts';
import { type Bench, enqueueAll, finished, type Measured, settle, stopAndVerify } from './bench.ts';

/** From the start of the worker until every job has run and is durably finished. */
export async function drain(bench: Bench): Promise<Measured> {
  const { dead, future } = bench.size;
  if (dead + future > 0) await bench.open.litter(dead, future);
  await enqueueAll(bench);
  await settle(bench);
  const started = performance.now();
  const stop = await bench.open.work(bench.tally.mark);
  const ended = await finished(bench);
  await stopAndVerify(bench, stop);
  return { value: bench.size.jobs / ((ended - started) / 1000) };
}

/**
 * The same while another session, in the same database and since before the first enqueue, keeps a
 * transaction open: no row that dies during the run can be cleaned away.
 */
export async function drainHeld(bench: Bench): Promise<Measured> {
  return withClient(bench.task.url, async (holder) => {
    await holder.query('begin isolation level repeatable read');
    await holder.query('select txid_current()');
    const measured = await drain(bench);
    await holder.query('rollback');
    return measured;
  });
}
