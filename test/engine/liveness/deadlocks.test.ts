import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Priority, Tallyman } from '../../../src/engine/index.ts';
import { allEnded, seeded, shortLease, stage } from '../../support/liveness.ts';
import { type KindSpec, stepKind } from '../../support/liveness-kinds.ts';
import { seededRandom } from '../../support/seeded-random.ts';

const queues = Array.from({ length: 8 }, (_, n) => `queue-${n}`);
const specs: KindSpec[] = queues.map((queue) => ({ name: `kind-of-${queue}`, queue }));

test('ENG-16: four worker processes on eight queues with mixed priorities: no deadlock, and all jobs run', async () => {
  const random = seededRandom();
  const scene = await stage();
  const { rows, count } = scene;
  const kinds = specs.map((spec) => stepKind(spec));
  const database = new URL(scene.url).pathname.slice(1);
  const deadlocks = () =>
    count('select deadlocks::integer from pg_stat_database where datname = $1', [database]);
  expect(await deadlocks()).toBe(0);

  const workers = Array.from({ length: 4 }, () => scene.process(specs, { ...shortLease, concurrency: 5 }));
  await Promise.all(workers.map((worker) => worker.ready));
  let enqueued = 0;
  const one = () => ({
    payload: { i: 0, act: 'quiet' as const, ms: random.whole(30) },
    priority: random.whole(4) as Priority,
    ...(random.whole(5) === 0 && { delayMs: random.whole(1000) }),
  });
  const enqueue = async (tallyman: Tallyman): Promise<void> => {
    const kind = random.of(kinds);
    const items = Array.from({ length: random.of([1, 1, 1, 5]) }, one);
    const [only] = items;
    if (items.length === 1 && only) {
      const { payload, ...options } = only;
      await tallyman.enqueue(kind, payload, options);
    } else await tallyman.enqueueMany(kind, items);
    enqueued += items.length;
  };
  // A backlog first: claims that find work everywhere take from many queues at once.
  for (const kind of kinds)
    await scene.tallyman.enqueueMany(
      kind,
      Array.from({ length: 150 }, () => {
        enqueued += 1;
        return one();
      }),
    );
  const end = Date.now() + 8000;
  const enqueuers = await Promise.all([1, 2, 3, 4].map(() => scene.another({ poolSize: 3 })));
  await Promise.all(
    enqueuers.map(async (tallyman) => {
      while (Date.now() < end) {
        await enqueue(tallyman);
        await sleep(random.between(40, 80));
      }
    }),
  );
  await allEnded(scene);
  // A session reports its deadlocks when it is idle, at most once a second.
  await sleep(2500);
  expect(await deadlocks(), seeded(random.seed)).toBe(0);
  expect(enqueued).toBeGreaterThan(1400);
  expect(
    await rows('select status, attempts, count(*)::integer as n from tallyman.history group by 1, 2'),
    seeded(random.seed),
  ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: enqueued }]);
  expect(workers.map((worker) => worker.end)).toEqual([undefined, undefined, undefined, undefined]);
});
