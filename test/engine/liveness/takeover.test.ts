import { expect, test } from 'vitest';
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

test('ENG-16: with the default lease, the five jobs of a killed worker run again within seconds', async () => {
  const scene = await stage();
  const { rows, count } = scene;
  const first = await scene.ready(specs, {});
  await hanging(scene, 4);
  await hanging(scene, 1, 'a');
  await until('all five run', async () => (await count('select count(*) from starts')) === 5);
  const second = await scene.ready(specs, {});
  const [killed] = await rows<{ at: Date }>('select clock_timestamp() as at');
  await first.process.kill();
  const again = () =>
    rows<{ after: number }>(
      `select extract(epoch from min(at) - $2)::float8 as after from starts where worker = $1 group by job order by 1`,
      [second.id, killed?.at],
    );
  await until('all five run again', async () => (await again()).length === 5, 15_000).catch(() => {});
  expect(await again(), 'seconds from the kill to each restart').toHaveLength(5);
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
  const claimed = (await tallyman.queues.list()).reduce((sum, queue) => sum + queue.running, 0);
  await scene.ready(specs, {});
  await first.process.kill();
  const left = () => count('select count(*) from tallyman.jobs');
  await until('nothing is left', async () => (await left()) === 0, 20_000).catch(() => {});
  console.info(`liveness: ${claimed} jobs were in the killed worker, 2 of them running`);
  expect(claimed).toBeGreaterThan(2);
  expect(await left(), 'jobs left 20 s after the kill').toBe(0);
  expect(
    await rows('select status, attempts, count(*)::integer as n from tallyman.history group by 1, 2'),
  ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 3002 }]);
});

test('ENG-16: a worker whose connections are all cut once goes on; no job is run twice or charged', async () => {
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
  await allEnded(scene, 40_000);
  expect([victim, other].map(({ process }) => process.end)).toEqual([undefined, undefined]);
  expect(
    await rows('select status, attempts, count(*)::integer as n from tallyman.history group by 1, 2'),
  ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 12 }]);
  expect(await rows('select job from finishes where not aborted group by job having count(*) > 1')).toEqual(
    [],
  );
  expect(await count('select count(*) from effects')).toBe(6);
  // Both are workers like any other again.
  await tallyman.enqueueMany(
    kind,
    Array.from({ length: 200 }, (_, i) => ({ payload: { i, ms: 50 } })),
  );
  await allEnded(scene, 20_000);
  expect(await count('select count(distinct worker) from starts where i >= 12')).toBe(2);
});
