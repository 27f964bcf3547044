import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { load } from '../../support/chaos-writers.ts';
import { allEnded, type Stage, Supervisor, stage } from '../../support/liveness.ts';
import { type KindSpec, stepKind } from '../../support/liveness-kinds.ts';
import { until } from '../../support/until.ts';

const ordinary: KindSpec = { name: 'ordinary' };
/** How jobs of a kind have ended. */
const ends = ({ rows }: Stage, kind: string) =>
  rows(
    `select status, attempts, count(*)::integer as n from tallyman.history where kind = $1 group by 1, 2
      union all select 'DEAD_LETTER', attempts, count(*)::integer from tallyman.dead_letters where kind = $1 group by 2`,
    [kind],
  );

const innocents = ({ tallyman }: Stage, n: number) =>
  tallyman.enqueueMany(
    stepKind(ordinary),
    Array.from({ length: n }, (_, i) => ({ payload: { i, ms: 20 } })),
  );

test('ENG-17: a worker that is killed with one job from each of three queues charges none of them', async () => {
  const scene = await stage();
  const { tallyman, count } = scene;
  const specs = ['a', 'b', 'c'].map((queue) => ({ name: `in-${queue}`, queue }));
  const first = await scene.ready(specs);
  for (const [i, spec] of specs.entries()) {
    await tallyman.enqueue(stepKind(spec), { i, act: 'hang once' });
    // One after the other, so that each is claimed by itself.
    await until('it has started', async () => (await count('select count(*) from starts')) === i + 1);
  }
  await first.process.kill();
  await scene.ready(specs);
  await allEnded(scene);
  for (const spec of specs)
    expect(await ends(scene, spec.name)).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 1 }]);
});

test('ENG-17: a worker that is killed with two jobs claimed separately from one queue charges none of them', async () => {
  const scene = await stage();
  const { tallyman, count } = scene;
  const first = await scene.ready([ordinary]);
  for (const i of [0, 1]) {
    await tallyman.enqueue(stepKind(ordinary), { i, act: 'hang once' });
    await until('it has started', async () => (await count('select count(*) from starts')) === i + 1);
  }
  await first.process.kill();
  await scene.ready([ordinary]);
  await allEnded(scene);
  expect(await ends(scene, 'ordinary')).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 2 }]);
});

test.each([1, 3])(
  'ENG-17: the job behind a lane’s poison of %i attempts, with one attempt, runs',
  async (maxAttempts) => {
    const scene = await stage();
    const { tallyman } = scene;
    const specs: KindSpec[] = [
      { name: 'poison', maxAttempts },
      { name: 'behind', maxAttempts: 1 },
    ];
    const [poison, behind] = specs.map((spec) => stepKind(spec)) as [
      ReturnType<typeof stepKind>,
      ReturnType<typeof stepKind>,
    ];
    await tallyman.enqueue(poison, { i: 0, act: 'exit' }, { lane: 'a' });
    await tallyman.enqueue(behind, { i: 1 }, { lane: 'a' });
    const supervisor = new Supervisor(scene, specs, 1);
    await allEnded(scene);
    expect(await ends(scene, 'behind')).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 1 }]);
    expect(await ends(scene, 'poison')).toEqual([{ status: 'DEAD_LETTER', attempts: maxAttempts, n: 1 }]);
    await supervisor.expectCrashes(maxAttempts);
  },
);

test('ENG-17: the job behind one that ends its process right after ctx.commit had not started: it is not charged', async () => {
  const scene = await stage();
  const { tallyman } = scene;
  const specs: KindSpec[] = [
    { name: 'poison', maxAttempts: 3 },
    { name: 'behind', maxAttempts: 1 },
  ];
  const [poison, behind] = specs.map((spec) => stepKind(spec)) as [
    ReturnType<typeof stepKind>,
    ReturnType<typeof stepKind>,
  ];
  await tallyman.enqueue(poison, { i: 0, act: 'exit, commit and exit' }, { lane: 'a' });
  await tallyman.enqueue(behind, { i: 1 }, { lane: 'a' });
  const supervisor = new Supervisor(scene, specs, 1);
  await allEnded(scene);
  expect(await scene.count('select count(*) from starts where i = 1'), 'runs of the job behind').toBe(1);
  expect(await ends(scene, 'poison')).toMatchObject([{ status: 'SUCCEEDED', n: 1 }]);
  expect(await ends(scene, 'behind')).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 1 }]);
  await supervisor.expectCrashes(2);
});

test('ENG-17: a poison that takes four seconds, among ordinary traffic: exactly three crashes, nobody else is charged', {
  timeout: 400_000,
}, async () => {
  const scene = await stage();
  const { tallyman, rows } = scene;
  const specs: KindSpec[] = [{ name: 'poison', maxAttempts: 3 }, ordinary];
  // One batch, in which the poison runs beside others that are slow, too.
  const slow = (n: number) =>
    tallyman.enqueueMany(
      stepKind(ordinary),
      Array.from({ length: n }, (_, i) => ({ payload: { i, ms: 300 * i } })),
    );
  await slow(4);
  const { id } = await tallyman.enqueue(stepKind({ name: 'poison', maxAttempts: 3 }), {
    i: 0,
    act: 'exit',
    ms: 4000,
  });
  await slow(16);
  let enqueued = 20;
  const supervisor = new Supervisor(scene, specs, 2);
  const traffic = load([
    async (ended) => {
      while (!ended()) {
        await innocents(scene, 2);
        enqueued += 2;
        await sleep(80);
      }
    },
  ]);
  await until(
    'the poison is a dead letter',
    async () => (await tallyman.deadLetters.get(id)) !== undefined,
    240_000,
  ).catch(() => {});
  await traffic.stop();
  expect(await rows(`select attempts from tallyman.jobs where id = $1`, [id])).toEqual([]);
  await allEnded(scene);
  expect(await ends(scene, 'poison')).toEqual([{ status: 'DEAD_LETTER', attempts: 3, n: 1 }]);
  expect(await ends(scene, 'ordinary')).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: enqueued }]);
  await supervisor.expectCrashes(3);
});

test('ENG-17: a poison that exits at once, among 20 ordinary jobs: exactly five crashes', {
  timeout: 400_000,
}, async () => {
  const scene = await stage();
  const { tallyman } = scene;
  const specs: KindSpec[] = [{ name: 'poison' }, ordinary];
  await innocents(scene, 10);
  await tallyman.enqueue(stepKind({ name: 'poison' }), { i: 0, act: 'exit' });
  await innocents(scene, 10);
  const supervisor = new Supervisor(scene, specs, 2);
  await allEnded(scene, 300_000);
  expect(await ends(scene, 'poison')).toEqual([{ status: 'DEAD_LETTER', attempts: 5, n: 1 }]);
  expect(await ends(scene, 'ordinary')).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: 20 }]);
  await supervisor.expectCrashes(5);
});

test.each([
  { where: 'free', more: {} },
  { where: 'in a lane', more: { lane: 'a' } },
])('ENG-17: a lone poison with one attempt, $where: exactly one crash', async ({ more }) => {
  const scene = await stage();
  const spec: KindSpec = { name: 'poison', maxAttempts: 1 };
  await scene.tallyman.enqueue(stepKind(spec), { i: 0, act: 'exit' }, more);
  const supervisor = new Supervisor(scene, [spec], 1);
  await allEnded(scene);
  expect(await ends(scene, 'poison')).toEqual([{ status: 'DEAD_LETTER', attempts: 1, n: 1 }]);
  await supervisor.expectCrashes(1);
});
