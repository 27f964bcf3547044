import { orderChecking } from '../verify.ts';
import { type Bench, enqueueAll, finished, type Measured, settle, stopAndVerify } from './bench.ts';

/** A drain of lanes, many or one, whose handler checks the order. */
export async function lanes(bench: Bench): Promise<Measured> {
  const order = orderChecking(bench.tally);
  await enqueueAll(bench);
  await settle(bench);
  const started = performance.now();
  const stop = await bench.open.work(order.handler);
  const ended = await finished(bench);
  await stopAndVerify(bench, stop);
  order.verify();
  return { value: bench.size.jobs / ((ended - started) / 1000) };
}
