import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { load } from '../../support/chaos-writers.ts';
import { shortLease, stage } from '../../support/liveness.ts';
import { stepKind } from '../../support/liveness-kinds.ts';
import { until } from '../../support/until.ts';

const specs = [{ name: 'held' }, { name: 'quick' }];
const [backlog, low] = [20_000, 15_000];

/** Ten jobs of a killed worker, behind a backlog that never ends. Answers how long after the kill each began again. */
async function restartsBehindBacklog(ms: number, waitMs: number): Promise<{ after: number[]; left: number }> {
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
  const [killed] = await rows<{ at: Date }>('select clock_timestamp() as at');
  await first.process.kill();
  const again = () =>
    rows<{ after: number }>(
      `select extract(epoch from min(at) - $2)::float8 as after from starts where worker = $1 group by job order by 1`,
      [second.id, killed?.at],
    );
  // Wait longer than is allowed, so that a failure shows how late they were.
  await until('all ten run again', async () => (await again()).length === 10, waitMs).catch(() => {});
  const left = await count(`select count(*) from tallyman.jobs where kind = 'quick'`);
  await refilling.stop();
  return { after: (await again()).map((row) => row.after), left };
}

test('ENG-16: ten jobs of a killed worker run again while another is busy with an endless backlog', async () => {
  const { after, left } = await restartsBehindBacklog(0, 25_000);
  expect(left).toBeGreaterThan(1000);
  expect(after, 'seconds from the kill to each restart').toHaveLength(10);
  expect(after.at(-1)).toBeLessThan(15);
});

test('ENG-16: the same with jobs that take two seconds each', async () => {
  const { after, left } = await restartsBehindBacklog(2000, 25_000);
  expect(left).toBeGreaterThan(1000);
  expect(after, 'seconds from the kill to each restart').toHaveLength(10);
  expect(after.at(-1)).toBeLessThan(15);
});
