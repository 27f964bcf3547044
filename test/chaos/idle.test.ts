import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { drained, Fleet, scene } from '../support/chaos.ts';
import { ChaosProxy } from '../support/chaos-proxy.ts';

test('an idle worker sends under 5 statements a second', async () => {
  const bundle = await scene();
  const proxy = await ChaosProxy.before(bundle.url);
  const fleet = new Fleet({ url: proxy.url, options: {} });
  await fleet.start(1);
  // It has worked, on both sorts, and has come to rest.
  await bundle.tallyman.enqueueMany(
    bundle.kinds.once,
    Array.from({ length: 500 }, (_, i) => ({ payload: { i }, ...(i % 2 && { lane: `l${i % 10}` }) })),
  );
  await drained(bundle, fleet);
  await sleep(3000);

  const seconds = 6;
  const before = proxy.statements;
  await sleep(seconds * 1000);
  const statements = (proxy.statements - before) / seconds;
  console.info(`chaos: an idle worker sends ${statements.toFixed(1)} statements a second`);
  // It polls, and does nothing else.
  expect(statements).toBeGreaterThan(0);
  expect(statements).toBeLessThan(5);
});
