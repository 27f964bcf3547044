import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind, type Tallyman } from '../../../src/engine/index.ts';
import { type Stage, stage } from '../../support/liveness.ts';
import { until } from '../../support/until.ts';

/** Longer than any test: what waits for a poll does not happen. */
const neverMs = 600_000;

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

test('LANE-8: a lane of 3,000 jobs drains without a poll in between', async () => {
  const { tallyman } = await stage();
  const { ran, kind } = recorded();
  for (let n = 0; n < 3000; n += 500)
    await tallyman.enqueueMany(
      kind,
      Array.from({ length: 500 }, (_, i) => ({ payload: { n: n + i }, lane: 'deep' })),
    );
  await startWorker(tallyman, { kinds: [kind], pollIntervalMs: neverMs });
  await until('all have run', () => ran.length >= 3000);
  expect(ran.length).toBe(3000);
  expect(outOfOrder(ran)).toBe(0);
});

/**
 * Writers go on until so many jobs of their lane have run, and most of what they committed has. A worker that falls behind never
 * comes to that; one that keeps up may have been held up for a moment.
 */
async function keepsUp(
  runs: number,
  write: (scene: Stage, ended: () => boolean, commit: () => void) => Promise<void>,
) {
  const scene = await stage();
  const { ran, kind } = recorded();
  await startWorker(await scene.another(), { kinds: [kind] });
  let committed = 0;
  const atEnd = { committed: 0, ran: 0 };
  const deadline = performance.now() + 60_000;
  await write(
    scene,
    () => {
      if (ran.length < runs) return false;
      if (ran.length < committed * 0.8 && performance.now() < deadline) return false;
      if (atEnd.ran === 0) Object.assign(atEnd, { committed, ran: ran.length });
      return true;
    },
    () => {
      committed += 1;
    },
  );
  expect(atEnd.ran, `of ${atEnd.committed} committed had run`).toBeGreaterThanOrEqual(atEnd.committed * 0.8);
  await until('the rest has run', () => ran.length >= committed);
  expect(ran.length).toBe(committed);
  expect(outOfOrder(ran)).toBe(0);
  console.info(`liveness: hot lane, ${JSON.stringify(atEnd)}`);
}

test('LANE-8: a hot lane keeps up with four writers that keep their transactions open', async () => {
  const { kind } = recorded();
  await keepsUp(400, async ({ another }, ended, commit) => {
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
  await keepsUp(3000, async ({ another }, ended, commit) => {
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
