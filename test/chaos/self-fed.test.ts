import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Fleet, scene, WorkerProcess } from '../support/chaos.ts';
import { ChaosProxy } from '../support/chaos-proxy.ts';
import { until } from '../support/engine.ts';
import { seededRandom } from '../support/seeded-random.ts';

const options = {
  leaseMs: 1000,
  renewMs: 300,
  pollIntervalMs: 100,
  recoverIntervalMs: 300,
  stuckAfterMs: 1000,
};

test('ENG-2, ENG-8: workers that claim in the commits of their own enqueues, killed and cut off: nothing lost, nothing twice', {
  timeout: 300_000,
}, async () => {
  const random = seededRandom();
  const { url, rows } = await scene();
  await rows('create table acknowledged (job bigint primary key, at_once boolean not null)');
  const proxy = await ChaosProxy.before(url);
  const program = new URL('./self-fed-worker.ts', import.meta.url).pathname;
  const fleet = new Fleet({ url: proxy.url, options, program, more: { seed: random.seed } });
  await fleet.start(2);
  const claimedAtOnce = async () => (await rows('select from acknowledged where at_once')).length;
  await until('some were claimed as they were enqueued', async () => (await claimedAtOnce()) > 0);
  while (fleet.kills < 15) {
    const enough = (await claimedAtOnce()) + 8;
    const deadline = Date.now() + 3000;
    while (Date.now() < deadline && (await claimedAtOnce()) < enough) await sleep(20);
    await sleep(random.between(0, 100));
    if (random.chance(0.5)) proxy.cut(0.5, random.next);
    await fleet.killOne(random);
  }
  await fleet.killAll();
  const heir = new WorkerProcess({ url, options });
  await heir.ready;
  await until(
    'all is done',
    async () => (await rows('select from tallyman.jobs limit 1')).length === 0,
    60_000,
  );
  await heir.kill();
  const [figures] = await rows<{ acknowledged: number; at_once: number; lost: number; twice: number }>(
    `select count(*)::integer as acknowledged, (count(*) filter (where at_once))::integer as at_once,
            (count(*) filter (where not exists (select 1 from effects e where e.job = a.job)))::integer as lost,
            (select count(*)::integer from (select from effects group by job having count(*) > 1) d) as twice
       from acknowledged a`,
  );
  console.info(
    `chaos: ${figures?.acknowledged} jobs, ${figures?.at_once} of them claimed as they were enqueued, ${fleet.kills} kills`,
  );
  expect(figures).toMatchObject({ lost: 0, twice: 0 });
  expect(figures?.at_once).toBeGreaterThan(0);
});
