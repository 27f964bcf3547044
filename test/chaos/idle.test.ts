import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { drained, Fleet, scene } from '../support/chaos.ts';
import { ChaosProxy } from '../support/chaos-proxy.ts';

test('an idle worker: under 5 statements a second, and next to no processor time', async () => {
  const bundle = await scene();
  const proxy = await ChaosProxy.before(bundle.url);
  const fleet = new Fleet({ url: proxy.url, options: {} });
  await fleet.start(1);
  const [worker] = fleet.all;
  if (!worker) throw new Error('no worker');
  // It has worked, on both sorts, and has come to rest.
  await bundle.tallyman.enqueueMany(
    bundle.kinds.once,
    Array.from({ length: 500 }, (_, i) => ({ payload: { i }, ...(i % 2 && { lane: `l${i % 10}` }) })),
  );
  await drained(bundle, fleet);
  await sleep(3000);

  const seconds = 10;
  const [before, cpuBefore] = [proxy.statements, await worker.ask('cpu')];
  await sleep(seconds * 1000);
  const [after, cpuAfter] = [proxy.statements, await worker.ask('cpu')];
  const statements = (after - before) / seconds;
  const cpu = (cpuAfter.user - cpuBefore.user + (cpuAfter.system - cpuBefore.system)) / 1e6 / seconds;
  console.info(
    `chaos: an idle worker sends ${statements.toFixed(1)} statements a second and takes ${(cpu * 100).toFixed(2)} % of a core`,
  );
  expect(statements).toBeGreaterThan(0.5);
  expect(statements).toBeLessThan(5);
  // 1 % on a quiet machine; a busy one makes every wake-up dearer.
  expect(cpu).toBeLessThan(0.04);
});
