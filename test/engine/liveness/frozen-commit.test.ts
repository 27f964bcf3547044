import { expect, test } from 'vitest';
import { allEnded, stage } from '../../support/liveness.ts';
import { stepKind } from '../../support/liveness-kinds.ts';
import { until } from '../../support/until.ts';
import { WiretapProxy } from '../../support/wiretap-proxy.ts';

const specs = [{ name: 'k' }];
const options = { leaseMs: 6000, renewMs: 500, recoverIntervalMs: 500, pollIntervalMs: 500 };

test('ENG-16, ENG-4: a worker frozen inside ctx.commit, before its COMMIT, is taken over; the effect happens once', async () => {
  const scene = await stage();
  const { tallyman, rows, count } = scene;
  const frozen = await scene.ready(specs, options);
  const free = await tallyman.enqueue(stepKind({ name: 'k' }), { i: 0, act: 'hold commit once' });
  const inLane = await tallyman.enqueue(
    stepKind({ name: 'k' }),
    { i: 1, act: 'hold commit once' },
    { lane: 'a' },
  );
  await until('both transactions are open', async () => (await count('select count(*) from marks')) === 2);
  frozen.process.signal('SIGSTOP');
  const other = await scene.ready(specs, options);
  const ended = async () =>
    (await rows<{ id: string }>('select id from tallyman.history where worker = $1 order by id', [other.id]))
      .length;
  await until('the other worker has done both', async () => (await ended()) === 2);

  await rows(`insert into marks (job, worker, mark) values (0, 'the test', 'go on')`);
  frozen.process.signal('SIGCONT');
  await allEnded(scene);
  await until(
    'the continued handlers have come to their end',
    async () =>
      (await count(`select count(*) from marks where mark = 'commit is over' and worker = $1`, [
        frozen.id,
      ])) === 2,
  );
  expect(await rows('select job, worker from effects order by job')).toEqual([
    { job: free.id, worker: other.id },
    { job: inLane.id, worker: other.id },
  ]);
  expect(
    await rows(`select id, status, attempts from tallyman.history where id = any ($1) order by id`, [
      [free.id, inLane.id],
    ]),
  ).toEqual([
    { id: free.id, status: 'SUCCEEDED', attempts: expect.any(Number) },
    { id: inLane.id, status: 'SUCCEEDED', attempts: expect.any(Number) },
  ]);
});

test('ENG-16, ENG-4: the same with every statement of the transaction done and only the COMMIT missing', async () => {
  const scene = await stage();
  const { tallyman, rows, count } = scene;
  const proxy = await WiretapProxy.before(scene.url);
  proxy.holdCommitAfter('insert into effects');
  const frozen = await scene.ready(specs, options, proxy.url);
  const kind = stepKind({ name: 'k' });
  const free = await tallyman.enqueue(kind, { i: 0, act: 'commit' });
  const inLane = await tallyman.enqueue(kind, { i: 1, act: 'commit' }, { lane: 'a' });
  await until('both wait for their COMMIT', () => proxy.held === 2);
  frozen.process.signal('SIGSTOP');
  const other = await scene.ready(specs, options);
  const done = () => count('select count(distinct job) from effects where worker = $1', [other.id]);
  await until('the other worker has done both', async () => (await done()) === 2);

  proxy.release();
  frozen.process.signal('SIGCONT');
  await allEnded(scene);
  await tallyman.enqueueMany(
    kind,
    Array.from({ length: 20 }, () => ({ payload: { i: 2, ms: 100 } })),
  );
  await allEnded(scene);
  expect(await rows('select job, worker from effects order by job')).toEqual([
    { job: free.id, worker: other.id },
    { job: inLane.id, worker: other.id },
  ]);
  expect(
    await count('select count(*) from tallyman.history where id = any ($1)', [[free.id, inLane.id]]),
  ).toBe(2);
});
