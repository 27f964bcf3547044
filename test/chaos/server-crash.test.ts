import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { TallymanError } from '../../src/engine/errors.ts';
import { amiss, drained, expectFinishedOnce, Fleet, type Scene, scene } from '../support/chaos.ts';
import { LaneWriter, laneNames, load } from '../support/chaos-writers.ts';
import { until } from '../support/engine.ts';
import { privateServer } from '../support/postgres.ts';
import { seededRandom } from '../support/seeded-random.ts';

const answers = (bundle: Scene): Promise<boolean> =>
  bundle.rows('select 1').then(
    () => true,
    () => false,
  );

test('ENG-9: what was acknowledged a moment before PostgreSQL was killed is there', {
  timeout: 300_000,
}, async () => {
  const server = await privateServer();
  const bundle = await scene({ url: server.url });
  const { tallyman, kinds } = bundle;
  const acknowledged: string[] = [];
  const ways = [
    async (i: number) => [await tallyman.enqueue(kinds.plain, { i })],
    async (i: number) => [await tallyman.enqueue(kinds.plain, { i }, { lane: 'a' })],
    async (i: number) =>
      tallyman.enqueueMany(kinds.plain, [{ payload: { i } }, { payload: { i }, lane: 'b' }]),
  ];
  // Nobody else commits, so nobody else's commit takes these to the disk.
  for (const [i, way] of ways.entries()) {
    acknowledged.push(...(await way(i)).map((job) => job.id));
    server.kill('SIGKILL');
    await server.restart();
    await until('the server answers again', () => answers(bundle), 60_000);
    const there = await bundle.rows<{ id: string }>('select id from tallyman.jobs order by id');
    expect(there.map((job) => job.id)).toEqual(acknowledged);
  }
});

test('ENG-8, ENG-9, LANE-4: PostgreSQL is killed under load, three times: nothing acknowledged is lost, nothing done twice', {
  timeout: 400_000,
}, async () => {
  const random = seededRandom();
  const server = await privateServer();
  const bundle = await scene({ url: server.url });
  const fleet = new Fleet({
    url: server.url,
    options: {
      leaseMs: 3000,
      renewMs: 800,
      recoverIntervalMs: 300,
      pollIntervalMs: 200,
      concurrency: 12,
      maxPrefetch: 40,
    },
  });
  await fleet.start(3);

  const writers = laneNames(60, 3).map(
    (lanes) => new LaneWriter(bundle, random, lanes, { ms: () => random.whole(5) }),
  );
  const free = { acknowledged: new Set<string>(), unknown: 0 };
  const one = async (ended: () => boolean) => {
    while (!ended()) {
      try {
        free.acknowledged.add((await bundle.tallyman.enqueue(bundle.kinds.once, { i: 0 })).id);
      } catch (error) {
        if (!(error instanceof TallymanError && error.code === 'OUTCOME_UNKNOWN')) throw error;
        free.unknown += 1;
        await sleep(50);
      }
      await sleep(10);
    }
  };
  const writing = load([
    ...writers.map((writer) => (ended: () => boolean) => writer.writeUntil(ended, 10)),
    ...Array.from({ length: 6 }, () => one),
  ]);

  const answersAgain = () => until('the server answers again', () => answers(bundle), 60_000);
  for (let crash = 0; crash < 2; crash += 1) {
    await sleep(random.between(2000, 3500));
    server.kill('SIGKILL');
    await sleep(random.between(0, 1000));
    await server.restart();
    await answersAgain();
  }
  // And one backend, in the middle of a statement if there is one: the server throws everybody out and recovers.
  await sleep(random.between(2000, 3500));
  const [backend] = await bundle.rows<{ pid: number }>(
    `select pid from pg_stat_activity where application_name = 'chaos worker' and pid <> pg_backend_pid()
      order by (state = 'active') desc limit 1`,
  );
  if (backend) {
    process.kill(backend.pid, 'SIGKILL');
    // It is listed until the server has noticed, which then ends all others.
    await until('the server has noticed', () =>
      bundle.rows('select 1 from pg_stat_activity where pid = $1', [backend.pid]).then(
        (rows) => rows.length === 0,
        () => true,
      ),
    );
  }
  await answersAgain();
  await sleep(2000);
  await writing.stop();
  await drained(bundle, fleet);

  expect(await amiss(bundle)).toEqual({});
  const present = new Set(
    (
      await bundle.rows<{ job: string }>(
        `select distinct lane || ' ' || i as job from (select lane, i from effects union all select lane, i from runs) w
          where lane is not null`,
      )
    ).map((row) => row.job),
  );
  const acknowledged = writers.flatMap((writer) => writer.acknowledged.map(({ lane, i }) => `${lane} ${i}`));
  const unknown = writers.flatMap((writer) => writer.unknown.map(({ lane, i }) => `${lane} ${i}`));
  const possible = new Set([...acknowledged, ...unknown]);
  expect(acknowledged.filter((job) => !present.has(job))).toEqual([]);
  expect([...present].filter((job) => !possible.has(job))).toEqual([]);
  const alone = new Set(
    (await bundle.rows<{ job: string }>('select job from effects where lane is null')).map((row) => row.job),
  );
  expect([...free.acknowledged].filter((id) => !alone.has(id))).toEqual([]);
  expect(alone.size).toBeLessThanOrEqual(free.acknowledged.size + free.unknown);
  await expectFinishedOnce(bundle, present.size + alone.size);
  expect(fleet.fallen).toEqual([]);
  console.info(
    `chaos: 3 crashes of PostgreSQL; ${acknowledged.length + free.acknowledged.size} jobs acknowledged and done, ` +
      `${unknown.length + free.unknown} of unknown outcome, of which ${
        present.size + alone.size - acknowledged.length - free.acknowledged.size
      } were there`,
  );
});
