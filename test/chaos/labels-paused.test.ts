import { expect, test } from 'vitest';
import { hashesAt } from '../apps/labels/shelf.ts';
import { mac, setPrice } from '../apps/labels/support.ts';
import { Fleet } from '../support/chaos.ts';
import { drained, until } from '../support/engine.ts';
import { HoldingProxy } from './holding-proxy.ts';
import { acceptedImages, gatewayProcess, labelWorker, recordedShop } from './labels-scene.ts';

test('LBL-3, LBL-5: a worker paused beyond its lease while it pushes: its late result changes nothing, and the label is pushed to once more', {
  timeout: 300_000,
}, async () => {
  const gateway = await gatewayProcess({});
  const line = await HoldingProxy.before(gateway);
  const scene = await recordedShop(line.url, { labels: 1, products: 1, timeoutMs: 60_000 });
  const options = {
    // Longer than a live worker can be kept from the processor on a busy machine.
    leaseMs: 6000,
    renewMs: 500,
    recoverIntervalMs: 300,
    pollIntervalMs: 100,
    concurrency: 4,
  };
  const settings = { url: scene.url, program: labelWorker, more: { secret: scene.secret }, options };
  const first = new Fleet(settings);
  await first.start(1);
  const [sleeper] = first.all;
  await drained(scene);
  const [early, late] = await hashesAt('2.00', '3.00');
  line.isHolding = true;
  await setPrice(scene, 'P0', '2.00');
  await until('the push is on its way', () => line.held === 1);
  sleeper?.signal('SIGSTOP');

  // The image is on its way and takes its time; another worker takes the label over and goes on.
  line.isHolding = false;
  const second = new Fleet(settings);
  await second.start(1);
  const otherId = await second.all[0]?.ready;
  await setPrice(scene, 'P0', '3.00');
  await drained(scene);
  const [begin] = await hashesAt('1.00');
  expect(await acceptedImages(gateway, mac(1))).toEqual([begin, early, late]);
  // Now the old one arrives, and nobody but the paused worker knows.
  line.release();
  await until('the late push has arrived', async () => (await acceptedImages(gateway, mac(1))).length === 4);
  const state = async () => ({
    pages: await scene.rows('select * from labels.pages'),
    history: await scene.rows('select id, status, worker from tallyman.history order by id'),
    jobs: await scene.rows('select id from tallyman.jobs'),
  });
  const before = await state();
  expect(before.history.slice(-2)).toMatchObject([{ worker: otherId }, { worker: otherId }]);
  await second.killAll();
  sleeper?.signal('SIGCONT');

  await until('the label shows the later image again', async () => {
    const accepted = await acceptedImages(gateway, mac(1));
    return accepted.length === 5;
  });
  await drained(scene);
  expect(await acceptedImages(gateway, mac(1))).toEqual([begin, early, late, early, late]);
  const after = await state();
  // What had been written is as it was; one task more was made and done.
  expect(after.history.slice(0, before.history.length)).toEqual(before.history);
  expect(after.history).toHaveLength(before.history.length + 1);
  expect(after.pages).toMatchObject([{ accepted_hash: late, state: 'processing' }]);
  expect(await scene.rows('select 1 from tallyman.dead_letters')).toEqual([]);
  expect(sleeper?.end).toBeUndefined();
});
