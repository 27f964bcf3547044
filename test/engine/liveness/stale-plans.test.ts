import { expect, onTestFinished, test } from 'vitest';
import { defineKind, type Tallyman } from '../../../src/engine/index.ts';
import { refreshStatistics } from '../../../src/engine/jobs/statistics.ts';
import { type Stage, stage } from '../../support/liveness.ts';
import { until } from '../../support/until.ts';

/*
 * A queue is empty most of the time, and the statistics of its tables say so. Sessions keep the plans that they made then.
 * What happens when a burst arrives?
 */

const tables = ['jobs', 'lanes', 'lane_gates', 'dedupe_keys'];
const burst = 10_000;

/** The engine's tables as autovacuum leaves them when it has come by in a quiet hour. */
async function quietHour({ rows }: Stage): Promise<void> {
  for (const table of tables) {
    // The statistics are the test's alone.
    await rows(`alter table tallyman.${table} set (autovacuum_enabled = false)`);
    await rows(`vacuum analyze tallyman.${table}`);
  }
  // Found empty, with pages that it could not give back.
  await rows(
    `update pg_class set relpages = greatest(relpages, 1), reltuples = 0
      where oid = any (select ('tallyman.' || t)::regclass from unnest($1::text[]) t)`,
    [tables],
  );
}

/** Rows of these tables that PostgreSQL has read for all sessions that have ended. */
const rowsRead = ({ count }: Stage): Promise<number> =>
  count(
    `select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables
      where schemaname = 'tallyman' and relname = any ($1)`,
    [tables],
  );

for (const [what, key] of [
  ['in lanes', () => ({})],
  ['in lanes, with dedupe keys', (i: number) => ({ dedupeKey: `k${i}` })],
] as const)
  test(`ENG-16: plans made for an empty queue do not compare every lane with every job of a burst ${what}`, async () => {
    const scene = await stage();
    // Nothing looks at the statistics: the statements themselves must do.
    await scene.rows(
      `create or replace function tallyman.outgrown_tables() returns text[] language sql as $$ select '{}'::text[] $$`,
    );
    // Few connections, so that all of them have their plans.
    const tallyman = await scene.another({ poolSize: 2 });
    let ran = 0;
    const kind = defineKind({
      name: 'k',
      handler: () => {
        ran += 1;
      },
    });
    const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 200 });
    onTestFinished(() => worker.stop());
    await worker.start();
    let made = 0;
    const enqueue = async (by: Tallyman, n: number, lanes: number) => {
      const jobs = Array.from({ length: n }, (_, i) => ({
        payload: {},
        lane: `l${i % lanes}`,
        ...key(made + i),
      }));
      made += n;
      await by.enqueueMany(kind, jobs);
    };
    const allHaveRun = () => until('all have run', () => ran === made, 100_000);
    for (let i = 0; i < 20; i += 1) {
      // A busy time, then a quiet one, then a few jobs, for which plans are made.
      if (i === 10) await quietHour(scene);
      await enqueue(tallyman, i < 10 ? 400 : 8, 50);
      await allHaveRun();
    }
    await tallyman.queues.pause('default');
    for (let i = 0; i < burst; i += 2000) await enqueue(scene.tallyman, 2000, 1000);
    await tallyman.queues.resume('default');
    await allHaveRun();
    await worker.stop();
    const before = await rowsRead(scene);
    await tallyman.close();
    await until('its sessions have reported', async () => (await rowsRead(scene)) > before);
    expect(await scene.count('select count(*) from tallyman.jobs')).toBe(0);
    expect((await rowsRead(scene)) / burst).toBeLessThan(60);
  });

test('ENG-16: a worker with a backlog has tables analyzed that have outgrown their statistics, once', async () => {
  const scene = await stage();
  const { tallyman, rows, count } = scene;
  const estimated = () => count(`select reltuples from pg_class where oid = 'tallyman.jobs'::regclass`);
  await quietHour(scene);
  const kind = defineKind({ name: 'k', handler: () => new Promise<void>(() => {}) });
  for (let i = 0; i < 5; i += 1)
    await tallyman.enqueueMany(
      kind,
      Array.from({ length: 2000 }, () => ({ payload: {} })),
    );
  expect(await estimated()).toBe(0);
  const worker = tallyman.worker({ kinds: [kind], concurrency: 2, pollIntervalMs: 50, stopTimeoutMs: 1 });
  onTestFinished(() => worker.stop());
  await worker.start();
  await until('the table was analyzed', async () => (await estimated()) === burst);
  const analyzed = () => rows(`select last_analyze from pg_stat_user_tables where relname = 'jobs'`);
  const first = await analyzed();
  await refreshStatistics(tallyman.database);
  expect(await analyzed()).toEqual(first);
});
