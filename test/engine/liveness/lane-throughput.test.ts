import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind, type Tallyman } from '../../../src/engine/index.ts';
import { type Stage, stage } from '../../support/liveness.ts';
import { until } from '../../support/until.ts';

/** A kind that notes the order in which jobs run, and a worker for it. */
function recorded(takesMs = 0) {
  const ran: { lane: string; seq: bigint }[] = [];
  const kind = defineKind<{ n: number }>({
    name: 'k',
    handler: (_, ctx) => {
      ran.push({ lane: ctx.lane ?? '', seq: BigInt(ctx.seq ?? 0) });
      return takesMs > 0 ? sleep(takesMs) : undefined;
    },
  });
  return { ran, kind };
}

const outOfOrder = (ran: readonly { seq: bigint }[]): number =>
  ran.filter(({ seq }, i) => i > 0 && seq <= (ran[i - 1]?.seq ?? 0n)).length;

async function startWorker(tallyman: Tallyman, options: Parameters<Tallyman['worker']>[0]): Promise<void> {
  const worker = tallyman.worker({ stopTimeoutMs: 2000, ...options });
  onTestFinished(() => worker.stop());
  await worker.start();
}

test('LANE-8: a lane of 3,000 jobs drains as fast as its handlers allow', async () => {
  const { tallyman } = await stage();
  const { ran, kind } = recorded();
  for (let n = 0; n < 3000; n += 500)
    await tallyman.enqueueMany(
      kind,
      Array.from({ length: 500 }, (_, i) => ({ payload: { n: n + i }, lane: 'deep' })),
    );
  const began = performance.now();
  await startWorker(tallyman, { kinds: [kind] });
  await until('all have run', () => ran.length >= 3000, 15_000).catch(() => {});
  const seconds = (performance.now() - began) / 1000;
  expect(ran.length, `jobs run after ${seconds.toFixed(1)} s`).toBe(3000);
  expect(outOfOrder(ran)).toBe(0);
  console.info(`liveness: a lane of 3,000 drained in ${seconds.toFixed(2)} s`);
});

/** Writes into one lane for eight seconds; at their end most of what was committed has run, in order. */
async function keepsUp(write: (scene: Stage, ended: () => boolean, commit: () => void) => Promise<void>) {
  const scene = await stage();
  const { ran, kind } = recorded();
  await startWorker(await scene.another(), { kinds: [kind] });
  let committed = 0;
  const end = Date.now() + 8000;
  await write(
    scene,
    () => Date.now() > end,
    () => {
      committed += 1;
    },
  );
  const atEnd = { committed, ran: ran.length };
  expect(atEnd.committed).toBeGreaterThan(100);
  expect(atEnd.ran, `of ${committed} committed had run at the end`).toBeGreaterThanOrEqual(committed * 0.8);
  await until('the rest has run', () => ran.length >= committed);
  expect(ran.length).toBe(committed);
  expect(outOfOrder(ran)).toBe(0);
  console.info(`liveness: hot lane, ${JSON.stringify(atEnd)}`);
}

test('LANE-8: a hot lane keeps up with four writers that keep their transactions open', async () => {
  const { kind } = recorded();
  await keepsUp(async ({ another }, ended, commit) => {
    const tallyman = await another({ poolSize: 5 });
    await Promise.all(
      [0, 1, 2, 3].map(async () => {
        while (!ended()) {
          await tallyman.database.transaction(async (tx) => {
            await tallyman.enqueue(kind, { n: 0 }, { lane: 'hot', tx });
            await sleep(5);
          });
          commit();
        }
      }),
    );
  });
});

test('LANE-8: a hot lane keeps up with about a thousand group-committed enqueues a second', async () => {
  const { kind } = recorded();
  await keepsUp(async ({ another }, ended, commit) => {
    // As four processes: each has its own group commit, and they compete for the lane.
    const instances = await Promise.all([1, 2, 3, 4].map(() => another({ poolSize: 5 })));
    await Promise.all(
      instances.map(async (tallyman) => {
        const all: Promise<unknown>[] = [];
        while (!ended()) {
          for (let n = 0; n < 3; n += 1)
            all.push(tallyman.enqueue(kind, { n }, { lane: 'hot' }).then(commit));
          await sleep(12);
        }
        await Promise.all(all);
      }),
    );
  });
});

test('LANE-8: with concurrency 1 a deep lane takes turns with another lane', async () => {
  const { tallyman } = await stage();
  const { ran, kind } = recorded(1);
  const fill = (lane: string, size: number) =>
    tallyman.enqueueMany(
      kind,
      Array.from({ length: size }, (_, n) => ({ payload: { n }, lane })),
    );
  for (let n = 0; n < 4; n += 1) await fill('deep', 250);
  await fill('other', 50);
  await startWorker(tallyman, { kinds: [kind], concurrency: 1 });
  const of = (lane: string) => ran.filter((run) => run.lane === lane);
  await until('the other lane is done', () => of('other').length === 50, 60_000);
  const deep = of('deep').length;
  expect(deep, 'jobs of the deep lane that ran before the last of the other').toBeLessThan(500);
  // And the other does not keep the deep one waiting, either: it is worked on before the other ends.
  expect(deep).toBeGreaterThan(0);
  await until('the deep lane is done', () => ran.length === 1050, 60_000);
  expect(outOfOrder(of('deep')) + outOfOrder(of('other'))).toBe(0);
});
