import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../../src/engine/index.ts';
import { allEnded, seeded, stage } from '../../support/liveness.ts';
import { type KindSpec, stepKind } from '../../support/liveness-kinds.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { until } from '../../support/until.ts';
import { WiretapProxy } from '../../support/wiretap-proxy.ts';

test('LANE-3: a lane with policy block stays blocked, whenever the worker is killed around the failure', {
  timeout: 600_000,
}, async () => {
  const random = seededRandom();
  const scene = await stage();
  const { tallyman, rows, count } = scene;
  const spec: KindSpec = { name: 'k', policy: 'block' };
  const kind = stepKind(spec);
  const rounds = 15;
  // Some lanes in each round: at the moment of the kill they are at different points of their failures.
  const lanes = Array.from({ length: rounds * 4 }, (_, n) => `lane-${n}`);
  let next = scene.process([spec]);
  for (let round = 0; round < rounds; round += 1) {
    const victim = next;
    await victim.ready;
    next = scene.process([spec]);
    await next.ready;
    await tallyman.enqueueMany(
      kind,
      lanes.slice(round * 4, round * 4 + 4).flatMap((lane, n) => [
        { payload: { i: 0, act: 'refuse' as const, ms: n * 8 }, lane },
        { payload: { i: 1 }, lane },
        { payload: { i: 2 }, lane },
      ]),
    );
    await until(
      'a head of this round has started',
      async () => (await count('select count(distinct lane) from starts')) > round * 4,
    );
    await sleep(random.between(0, 50));
    // Either may have them.
    await Promise.all([victim.kill(), random.between(0, 1) < 0.5 && next.kill()]);
    if (next.end) next = scene.process([spec]);
  }
  await next.ready;
  const failed = `select count(*) from tallyman.history where status = 'FAILED'`;
  await until('every head has failed', async () => (await count(failed)) === lanes.length);
  await until(
    'recovery has freed what the killed workers held',
    async () => (await count('select count(*) from tallyman.claims')) === 0,
  );
  // A wrong job would have been claimed before this one.
  await tallyman.enqueue(kind, { i: 0 });
  const succeeded = `select count(*) from tallyman.history where status = 'SUCCEEDED'`;
  await until('a later job has run', async () => (await count(succeeded)) === 1);
  const ran = await rows('select lane, i, worker from starts where i > 0');
  expect(ran, seeded(random.seed)).toEqual([]);
  const states = await Promise.all(lanes.map(async (lane) => (await tallyman.lanes.get(lane))?.state));
  expect(
    lanes.filter((_, n) => states[n] !== 'blocked'),
    seeded(random.seed),
  ).toEqual([]);
});

test('LANE-3: cancelling the head that waits for its retry frees the lane at once', async () => {
  const { tallyman } = await stage();
  const ran: number[] = [];
  const kind = defineKind<{ n: number }>({
    name: 'k',
    retry: { backoff: () => 600_000 },
    handler: ({ n }) => {
      ran.push(n);
      if (n === 0) throw new Error('later');
    },
  });
  const worker = tallyman.worker({ kinds: [kind], stopTimeoutMs: 2000 });
  onTestFinished(() => worker.stop());
  await worker.start();
  const head = await tallyman.enqueue(kind, { n: 0 }, { lane: 'a' });
  await tallyman.enqueue(kind, { n: 1 }, { lane: 'a' });
  await until(
    'the head waits for its retry',
    async () => (await tallyman.lanes.get('a'))?.state === 'waiting',
  );
  await tallyman.jobs.cancel(head.id);
  await until('the next one runs', () => ran.includes(1));
  expect(ran).toEqual([0, 1]);
});

test('LANE-3: a failure in a lane whose answer was lost is counted once', { timeout: 400_000 }, async () => {
  const scene = await stage();
  const { tallyman, rows } = scene;
  const proxy = await WiretapProxy.before(scene.url);
  const runs = new Map<string, number>();
  const kind = defineKind<{ n: number }>({
    name: 'k',
    retry: { maxAttempts: 3, backoff: () => 20 },
    handler: (_, ctx) => {
      const run = (runs.get(ctx.id) ?? 0) + 1;
      runs.set(ctx.id, run);
      throw new Error(`failure-${ctx.lane}-${run}.`);
    },
  });
  const behind = await scene.another({ databaseUrl: proxy.url });
  const worker = behind.worker({
    kinds: [kind],
    pollIntervalMs: 200,
    leaseMs: 9900,
    renewMs: 800,
    recoverIntervalMs: 500,
    stopTimeoutMs: 2000,
  });
  onTestFinished(() => worker.stop());
  await worker.start();
  const lanes = Array.from({ length: 8 }, (_, n) => `lane-${n}`);
  for (const [n, lane] of lanes.entries()) proxy.cutAfter(`failure-${lane}-${(n % 3) + 1}.`);
  // One after another: each has a cut of its own.
  for (const [n, lane] of lanes.entries()) {
    await tallyman.enqueue(kind, { n }, { lane });
    await allEnded(scene);
  }
  expect(proxy.cuts).toBe(lanes.length);
  expect([...runs.values()]).toEqual(lanes.map(() => 3));
  expect(await rows('select attempts from tallyman.dead_letters')).toEqual(
    lanes.map(() => ({ attempts: 3 })),
  );
});
