import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind, type KindDefinition } from '../../../src/engine/index.ts';
import { stage } from '../../support/liveness.ts';
import { until } from '../../support/until.ts';
import { WiretapProxy } from '../../support/wiretap-proxy.ts';

test('ENG-13: enqueueMany whose connection is cut after sending rejects with OUTCOME_UNKNOWN', async () => {
  const scene = await stage();
  const proxy = await WiretapProxy.before(scene.url);
  const tallyman = await scene.another({ databaseUrl: proxy.url });
  const kind = defineKind<{ text: string }>({ name: 'k', handler: () => {} });
  const ways = {
    alike: [{ payload: { text: 'alike-cut' } }, { payload: { text: 'alike-2' } }],
    lanes: [
      { payload: { text: 'lanes-cut' }, lane: 'a' },
      { payload: { text: 'lanes-2' }, lane: 'b' },
    ],
    keyed: [
      { payload: { text: 'keyed-cut' }, dedupeKey: 'x' },
      { payload: { text: 'keyed-2' }, delayMs: 10 },
    ],
  };
  for (const [way, items] of Object.entries(ways)) {
    proxy.cutAfter(`${way}-cut`);
    await expect(tallyman.enqueueMany(kind, items), way).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' });
  }
  expect(proxy.cuts).toBe(3);
});

test('ENG-13: a rate limit counts jobs, in lanes too', async () => {
  const { tallyman, another } = await stage();
  let started = 0;
  const kind = defineKind<{ n: number }>({
    name: 'k',
    handler: () => {
      started += 1;
    },
  });
  await tallyman.queues.configure('default', { ratePerSecond: 10, rateBurst: 10 });
  await tallyman.enqueueMany(
    kind,
    Array.from({ length: 200 }, (_, n) => ({ payload: { n }, lane: `lane-${n % 5}` })),
  );
  const began = performance.now();
  for (const instance of [tallyman, await another()]) {
    const worker = instance.worker({ kinds: [kind], pollIntervalMs: 200, stopTimeoutMs: 2000 });
    onTestFinished(() => worker.stop());
    await worker.start();
  }
  // The limit slows the lanes down, it does not stop them.
  await until('some have started', () => started >= 50);
  const seconds = (performance.now() - began) / 1000;
  // What may have started by now: the burst, ten a second, and some for a clock that is read a moment later.
  expect(started, `jobs started in ${seconds.toFixed(1)} s`).toBeLessThanOrEqual(10 + seconds * 10 + 15);
});

test('ENG-13: with onTimeout: wait the next job of a lane starts after the timed-out handler has returned', async () => {
  const { tallyman } = await stage();
  const log: string[] = [];
  const definition: KindDefinition<{ n: number }> & { onTimeout: 'wait' } = {
    name: 'k',
    timeoutMs: 300,
    onTimeout: 'wait',
    retry: { maxAttempts: 1 },
    handler: async ({ n }, ctx) => {
      log.push(`start ${n}`);
      if (n === 0) {
        // Deaf to its signal.
        await sleep(2000);
        log.push(`return ${n}, ${ctx.signal.aborted ? 'aborted' : 'not aborted'}`);
      }
    },
  };
  const kind = defineKind<{ n: number }>(definition);
  const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 100, stopTimeoutMs: 4000 });
  onTestFinished(() => worker.stop());
  await worker.start();
  const [slow] = await tallyman.enqueueMany(kind, [
    { payload: { n: 0 }, lane: 'a' },
    { payload: { n: 1 }, lane: 'a' },
  ]);
  await until(
    'both have run',
    () => log.includes('start 1') && log.some((line) => line.startsWith('return')),
  );
  expect(log).toEqual(['start 0', 'return 0, aborted', 'start 1']);
  await until(
    'the attempt counts as failed',
    async () => (await tallyman.deadLetters.get(slow?.id ?? '')) !== undefined,
  );
});
