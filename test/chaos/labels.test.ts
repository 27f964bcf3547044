import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFailed, onTestFinished, test } from 'vitest';
import { evenFaults } from '../../src/apps/labels/gateways/simulator/index.ts';
import { natsWakeup } from '../../src/engine/wakeups/nats.ts';
import { mac } from '../apps/labels/support.ts';
import { Fleet } from '../support/chaos.ts';
import { drained } from '../support/engine.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { privateNats } from '../support/services/nats.ts';
import { privateRedis } from '../support/services/redis.ts';
import { firstBytes } from '../support/services/service.ts';
import {
  acceptedCount,
  acceptedImages,
  changePrices,
  expectedImages,
  gatewayProcess,
  labelWorker,
  recordedShop,
  redraw,
  showProducts,
} from './labels-scene.ts';

const changes = Number(process.env.TEST_LABEL_CHANGES ?? 8_000);
const [labels, products, writers, kills] = [500, 200, 8, Math.ceil(changes / 1_000)];

test('LBL-2, LBL-3, LBL-4, LBL-5: thousands of changes by 8 writers, workers killed, NATS stopped, Redis wiped: each label gets its images in the order of the commits', {
  timeout: 600_000,
}, async () => {
  const random = seededRandom();
  const [nats, redis] = [await privateNats(), await privateRedis()];
  for (const service of [nats, redis]) {
    onTestFinished(() => service[Symbol.asyncDispose]());
    await service.start();
  }
  const gateway = await gatewayProcess({
    seed: random.seed,
    latency: { minMs: 0, maxMs: 10 },
    faults: evenFaults(0.05),
  });
  const scene = await recordedShop(gateway, {
    labels,
    products,
    engine: { wakeups: [natsWakeup({ servers: nats.url, reconnect: { minMs: 100, maxMs: 500 } })] },
  });
  const fleet = new Fleet({
    url: scene.url,
    nats: nats.url,
    redis: redis.url,
    program: labelWorker,
    more: { secret: scene.secret },
    options: {
      leaseMs: 10_000,
      renewMs: 2000,
      recoverIntervalMs: 1000,
      pollIntervalMs: 500,
      concurrency: 16,
    },
  });
  const began = performance.now();
  const took = () => `${((performance.now() - began) / 1000).toFixed(1)} s`;
  const log: string[] = [];
  onTestFailed(() => console.error(log.join('\n')));
  await fleet.start(4);
  log.push(`${took()}: workers run`);

  // Few prices and few designs, so that images come back and workers that start anew need not draw them all again.
  const price = () => `${random.whole(5) + 1}.${random.of(['09', '29', '49', '69', '89', '99'])}`;
  const sku = () => `P${random.whole(products)}`;
  let written = 0;
  const write = async (writer: number): Promise<void> => {
    const share = changes / writers;
    for (let done = 0, round = 0; done < share; round += 1) {
      while (written > ((fleet.kills + 4) * changes) / kills) await sleep(20);
      const size = Math.min(share - done, random.of([1, 1, 2, 5, 10, 20]));
      await scene.change(async (change) => {
        if (writer === 0 && round % 60 === 59) return redraw(change, `${round} {{price}}`);
        const skus = [...new Set(Array.from({ length: size }, sku))];
        if (random.whole(5) === 0)
          return changePrices(
            change,
            skus.map((one) => ({ sku: one, price: price() })),
          );
        const numbers = [...new Set(Array.from({ length: size }, () => random.whole(labels) + 1))];
        await showProducts(
          change,
          numbers.map((number) => ({ number, sku: sku() })),
        );
      });
      scene.tallyman.hint(['labels']);
      done += size;
      written += size;
    }
  };
  const writing = Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)));
  // Spread over all of the work, at moments that nobody chose.
  const killing = async () => {
    while (fleet.kills < kills) {
      const share = (changes * (fleet.kills + random.between(0, 1))) / kills;
      const deadline = Date.now() + 10_000;
      while ((await acceptedCount(gateway)) < share && Date.now() < deadline) await sleep(50);
      await sleep(random.between(0, 200));
      await fleet.killOne(random);
    }
  };
  const trouble = (async () => {
    const killed = async (share: number) => {
      while (fleet.kills < kills * share) await sleep(50);
    };
    await killed(0.25);
    await nats.kill();
    log.push(`${took()}: NATS is away`);
    await killed(0.5);
    expect(await firstBytes(redis.port, 'FLUSHALL\r\n', 60_000)).toBe('+OK\r\n');
    log.push(`${took()}: Redis was wiped`);
    await killed(0.75);
    await nats.start();
    log.push(`${took()}: NATS is back`);
  })();
  await Promise.all([writing, trouble, killing()]);
  log.push(`${took()}: ${fleet.kills} killed, all is written`);
  await drained(scene, 300_000);
  log.push(`${took()}: all is done`);

  expect(await scene.rows('select id, last_error from tallyman.dead_letters')).toEqual([]);
  expect(await scene.rows(`select id, last_error from tallyman.history where status = 'FAILED'`)).toEqual([]);
  const expected = await expectedImages(scene);
  expect(expected.size).toBe(labels);
  const wrong: object[] = [];
  for (let number = 1; number <= labels; number += 1) {
    const label = mac(number);
    const accepted = await acceptedImages(gateway, label);
    const wanted = expected.get(label) ?? [];
    const at = accepted.findIndex((hash, i) => hash !== wanted[i]);
    if (at < 0 && accepted.length === wanted.length) continue;
    const near = (hashes: readonly (string | null)[]) =>
      hashes.slice(Math.max(0, at - 2), at + 5).map((hash) => hash?.slice(0, 6));
    wrong.push({ label, at, of: wanted.length, accepted: near(accepted), wanted: near(wanted) });
  }
  expect(wrong.slice(0, 3)).toEqual([]);
  // And what the database knows is what the gateway has.
  const pages = await scene.rows<{ mac: string; hash: string; job: boolean }>(
    `select l.mac, g.accepted_hash as hash, g.accepted_job = g.wanted_job as job
       from labels.pages g join labels.labels l on l.id = g.label_id`,
  );
  expect(pages.filter(({ mac: label, hash, job }) => !job || hash !== expected.get(label)?.at(-1))).toEqual(
    [],
  );
  const [{ tasks = 0 } = {}] = await scene.rows<{ tasks: number }>(
    `select count(*)::int as tasks from tallyman.history where kind = 'labels.push'`,
  );
  console.info(
    `chaos: ${changes} changes, ${tasks} tasks, ${await acceptedCount(gateway)} images accepted, ${fleet.kills} SIGKILLs, in ${took()}`,
  );
});
