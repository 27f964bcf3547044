import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../../src/engine/index.ts';
import { allEnded, type Stage, stage } from '../../support/liveness.ts';
import { stepKind } from '../../support/liveness-kinds.ts';
import { until } from '../../support/until.ts';

const specs = [{ name: 'k' }];
const kind = stepKind({ name: 'k' });

const hanging = (scene: Stage, n: number, lane?: string) =>
  scene.tallyman.enqueueMany(
    kind,
    Array.from({ length: n }, (_, i) => ({
      payload: { i, act: 'hang once' as const },
      ...(lane && { lane }),
    })),
  );

/** Shorter than the default lease: what runs again by then was not found by its lease. */
const beforeTheLease = 45_000;

test('ENG-16: with the default lease, the five jobs of a killed worker run again before it ends', async () => {
  const scene = await stage();
  const { count } = scene;
  const first = await scene.ready(specs, {});
  await hanging(scene, 4);
  await hanging(scene, 1, 'a');
  await until('all five run', async () => (await count('select count(*) from starts')) === 5);
  const second = await scene.ready(specs, {});
  await first.process.kill();
  const again = () => count('select count(distinct job) from starts where worker = $1', [second.id]);
  await until('all five run again', async () => (await again()) === 5, beforeTheLease);
  await allEnded(scene);
});

test('ENG-16: what a killed worker had only prefetched is taken over, too', async () => {
  const scene = await stage();
  const { tallyman, rows, count } = scene;
  // In the middle of many quick ones, so that the worker has learned to prefetch when it comes to those that hang.
  const quick = (n: number) =>
    tallyman.enqueueMany(
      kind,
      Array.from({ length: n }, (_, i) => ({
        payload: { i, act: 'quiet' as const, ms: 1 },
        ...(i % 10 === 0 && { lane: `l${i % 70}` }),
      })),
    );
  await quick(2000);
  await hanging(scene, 2);
  await quick(1000);
  const first = await scene.ready(specs, { concurrency: 2 });
  await until('both slots are taken', async () => (await count('select count(*) from starts')) === 2);
  let claimed = 0;
  await until('more is prefetched', async () => {
    claimed = (await tallyman.queues.list()).reduce((sum, queue) => sum + queue.running, 0);
    return claimed > 2;
  });
  await scene.ready(specs, {});
  await first.process.kill();
  const left = () => count('select count(*) from tallyman.jobs');
  await until('nothing is left', async () => (await left()) === 0, beforeTheLease).catch(() => {});
  console.info(`liveness: ${claimed} jobs were in the killed worker, 2 of them running`);
  expect(await left(), 'jobs left that only the lease would free').toBe(0);
  expect(
    await rows('select status, attempts, count(*)::integer as n from tallyman.history group by 1, 2'),
  ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 3002 }]);
});

test('ENG-16: a worker whose connections are all cut once goes on; no job is run twice or charged', {
  timeout: 300_000,
}, async () => {
  const scene = await stage();
  const { tallyman, rows, count } = scene;
  const url = new URL(scene.url);
  url.searchParams.set('application_name', 'victim');
  const victim = await scene.ready(specs, { concurrency: 12 }, url.toString());
  await tallyman.enqueueMany(
    kind,
    Array.from({ length: 12 }, (_, i) => ({
      payload: { i, act: i % 2 ? ('commit' as const) : ('pass' as const), ms: 5000 },
      ...(i % 3 === 0 && { lane: `l${i}` }),
    })),
  );
  await until('all run', async () => (await count('select count(*) from starts')) === 12);
  const other = await scene.ready(specs, {});
  const cut = await rows(
    `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'victim'`,
  );
  expect(cut.length).toBeGreaterThan(2);
  await allEnded(scene);
  expect([victim, other].map(({ process }) => process.end)).toEqual([undefined, undefined]);
  expect(
    await rows('select status, attempts, count(*)::integer as n from tallyman.history group by 1, 2'),
  ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 12 }]);
  expect(await rows('select job from finishes where not aborted group by job having count(*) > 1')).toEqual(
    [],
  );
  expect(await count('select count(*) from effects')).toBe(6);
  // Both are workers like any other again.
  await until('both have run some of the next', async () => {
    await tallyman.enqueueMany(
      kind,
      Array.from({ length: 50 }, () => ({ payload: { i: 100, ms: 50 } })),
    );
    return (await count('select count(distinct worker) from starts where i = 100')) === 2;
  });
  await allEnded(scene);
});

test('ENG-16: a worker claims nothing before others can see that it is there', async () => {
  const { tallyman, count } = await stage();
  let isKnown: boolean | undefined;
  const asking = defineKind({
    name: 'asking',
    handler: async () => {
      isKnown = (await count('select count(*) from tallyman.workers')) === 1;
    },
  });
  await tallyman.enqueue(asking, {});
  const worker = tallyman.worker({ kinds: [asking] });
  onTestFinished(() => worker.stop());
  let starting: Promise<void> | undefined;
  await tallyman.database.transaction(async (tx) => {
    await tx.query('lock table tallyman.workers in share mode');
    starting = worker.start();
    await until(
      'it waits to sign on',
      async () =>
        (await count(
          `select count(*) from pg_locks where not granted and relation = 'tallyman.workers'::regclass`,
        )) > 0,
    );
    // Time for one that does not wait.
    await sleep(1000);
  });
  await starting;
  await until('it has run', () => isKnown !== undefined);
  expect(isKnown).toBe(true);
});
