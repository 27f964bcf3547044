import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { amiss, drained, drawn, expectFinishedOnce, Fleet, scene } from '../support/chaos.ts';
import { LaneWriter, laneNames, load } from '../support/chaos-writers.ts';
import { until } from '../support/engine.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { privateRedis } from '../support/services/redis.ts';
import { firstBytes } from '../support/services/service.ts';

test('LANE-7: Redis is wiped, frozen and stopped while lanes run: order and once still hold', {
  timeout: 300_000,
}, async () => {
  const random = seededRandom();
  const redis = await privateRedis();
  onTestFinished(() => redis[Symbol.asyncDispose]());
  await redis.start();
  const bundle = await scene();
  const fleet = new Fleet({
    url: bundle.url,
    redis: redis.url,
    options: {
      leaseMs: 2000,
      renewMs: 500,
      recoverIntervalMs: 500,
      pollIntervalMs: 200,
      concurrency: 12,
      maxPrefetch: 24,
    },
  });
  await fleet.start(3);

  const writers = laneNames(60, 3).map(
    (lanes) => new LaneWriter(bundle, random, lanes, { ms: () => random.whole(10) }),
  );
  const writing = load(writers.map((writer) => (ended) => writer.writeUntil(ended, 10)));
  const locks = async () => Number((await firstBytes(redis.port, 'DBSIZE\r\n'))?.slice(1));
  const locked = (when: string) =>
    until(`lanes are locked in Redis ${when}`, async () => (await locks()) > 0);
  const goOn = async (when: string) => {
    const before = await drawn(bundle, 'effects_id_seq');
    await until(`lanes go on ${when}`, async () => (await drawn(bundle, 'effects_id_seq')) > before + 50);
  };

  await locked('at first');
  for (let wipes = 0; wipes < 20; wipes += 1) {
    await sleep(random.between(10, 150));
    expect(await firstBytes(redis.port, 'FLUSHALL\r\n', 60_000)).toBe('+OK\r\n');
  }
  redis.pause();
  await sleep(1000);
  await goOn('while Redis is frozen');
  redis.resume();
  await sleep(1000);
  await redis.kill();
  await sleep(1000);
  await goOn('while Redis is away');
  // A worker that dies while Redis is away, and one that leaves its locks behind in it.
  await fleet.killOne(random);
  await redis.start();
  await locked('again');
  await fleet.killOne(random);
  await writing.stop();
  await drained(bundle, fleet);

  const jobs = writers.flatMap((writer) => writer.acknowledged).length;
  expect(await amiss(bundle)).toEqual({});
  await expectFinishedOnce(bundle, jobs);
  console.info(`chaos: Redis wiped 20 times, frozen, stopped, under ${jobs} jobs in 60 lanes`);
});
