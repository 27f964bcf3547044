import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { load } from '../../support/chaos-writers.ts';
import { shortLease, stage } from '../../support/liveness.ts';
import { stepKind } from '../../support/liveness-kinds.ts';
import { until } from '../../support/until.ts';

const specs = [{ name: 'held' }, { name: 'quick' }];
const [backlog, low] = [20_000, 15_000];

/**
 * Ten jobs of a killed worker, behind a backlog that never ends. Answers how many began again, how many jobs of the backlog ended
 * from the kill until the last of them did, and how many of the backlog waited at the kill.
 */
async function restartsBehindBacklog(
  ms: number,
): Promise<{ again: number; overtaken: number; waiting: number; left: number }> {
  const scene = await stage();
  const { tallyman, rows, count } = scene;
  const held = stepKind({ name: 'held' });
  const quick = stepKind({ name: 'quick' });
  const first = await scene.ready(specs, { ...shortLease, concurrency: 10 });
  await tallyman.enqueueMany(
    held,
    Array.from({ length: 10 }, (_, i) => ({ payload: { i, act: 'hang once' as const, ms } })),
  );
  await until(
    'the first worker runs all ten',
    async () => (await count('select count(*) from starts')) === 10,
  );
  const fill = (n: number) =>
    tallyman.enqueueMany(
      quick,
      Array.from({ length: n }, (_, i) => ({ payload: { i, act: 'quiet' as const, ms: 4 } })),
    );
  for (let n = 0; n < backlog; n += 5000) await fill(5000);
  const refilling = load([
    async (ended) => {
      while (!ended()) {
        if ((await count('select count(*) from tallyman.jobs')) < low) await fill(5000);
        await sleep(300);
      }
    },
  ]);
  const second = await scene.ready(specs, { ...shortLease, concurrency: 10 });
  await until(
    'the second worker is busy with the backlog',
    async () => (await count(`select count(*) from tallyman.history where kind = 'quick'`)) > 300,
  );
  const waiting = await count(`select count(*) from tallyman.jobs where kind = 'quick'`);
  const [killed] = await rows<{ at: string }>('select clock_timestamp()::text as at');
  await first.process.kill();
  const again = () => count('select count(distinct job) from starts where worker = $1', [second.id]);
  await until('all ten run again', async () => (await again()) === 10, 120_000).catch(() => {});
  const overtaken = await count(
    `select count(*) from tallyman.history where kind = 'quick' and finished_at >= $2::timestamptz
        and finished_at < (select max(at) from starts where worker = $1)`,
    [second.id, killed?.at],
  );
  const left = await count(`select count(*) from tallyman.jobs where kind = 'quick'`);
  await refilling.stop();
  return { again: await again(), overtaken, waiting, left };
}

test.each([
  { what: 'ten jobs of a killed worker run again while another is busy with an endless backlog', ms: 0 },
  { what: 'the same with jobs that take two seconds each', ms: 2000 },
])('ENG-16: $what', { timeout: 400_000 }, async ({ ms }) => {
  const { again, overtaken, waiting, left } = await restartsBehindBacklog(ms);
  expect(left).toBeGreaterThan(1000);
  expect(again, 'jobs that run again').toBe(10);
  // They did not go to the end of the line.
  expect(overtaken, 'jobs of the backlog that ended before the last of them ran').toBeLessThan(waiting);
});
