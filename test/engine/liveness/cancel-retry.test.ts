import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind, TallymanError } from '../../../src/engine/index.ts';
import { stage } from '../../support/liveness.ts';
import { until } from '../../support/until.ts';
import { WiretapProxy } from '../../support/wiretap-proxy.ts';

test('ENG-16: a job that is cancelled and retried at once runs, though the notice of the cancel arrives late', {
  timeout: 400_000,
}, async () => {
  const scene = await stage();
  const { tallyman, rows } = scene;
  const proxy = await WiretapProxy.before(scene.url);
  const started = new Set<string>();
  const finished = new Set<string>();
  let isCancelling = false;
  const kind = defineKind<{ n: number }>({
    name: 'k',
    handler: async (_, ctx) => {
      started.add(ctx.id);
      // Slots stay taken while jobs are cancelled: however long that takes, the others have not run.
      do await sleep(100, undefined, { signal: ctx.signal });
      while (isCancelling);
      finished.add(ctx.id);
    },
  });
  const behind = await scene.another({ databaseUrl: proxy.url });
  const worker = behind.worker({ kinds: [kind], pollIntervalMs: 20, stopTimeoutMs: 2000 });
  onTestFinished(() => worker.stop());
  await worker.start();
  const all: string[] = [];
  const unfinished = () => all.filter((id) => !finished.has(id));
  for (const delayMs of [50, 150, 300, 600]) {
    proxy.delayListenMs = delayMs;
    started.clear();
    const jobs = await tallyman.enqueueMany(
      kind,
      Array.from({ length: 100 }, (_, n) => ({ payload: { n } })),
    );
    const ids = jobs.map((job) => job.id);
    all.push(...ids);
    await until('some are running, the others are prefetched', () => started.size >= 5);
    isCancelling = true;
    let retried = 0;
    const cancelAndRetry = async (id: string): Promise<void> => {
      try {
        await tallyman.jobs.cancel(id);
        await tallyman.jobs.retry(id);
        retried += 1;
      } catch (error) {
        // It had ended before.
        if (!(error instanceof TallymanError && error.code === 'BAD_STATE')) throw error;
      }
    };
    // Those at the end first: they have not run. Several at a time, to be done before the first notice arrives.
    for (let n = ids.length; n > 0; n -= 8)
      await Promise.all(ids.slice(Math.max(0, n - 8), n).map(cancelAndRetry));
    isCancelling = false;
    expect(retried).toBeGreaterThan(30);
    await until('every job has run', () => unfinished().length === 0).catch(() => {});
    expect(unfinished(), `never ran to their end, with notices ${delayMs} ms late`).toEqual([]);
  }
  await until(
    'every job is confirmed',
    async () =>
      (await rows(`select 1 from tallyman.history where status = 'SUCCEEDED'`)).length === all.length,
  );
});
