import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { amiss, completedStale, drained, expectFinishedOnce, Fleet, scene } from '../support/chaos.ts';
import { engine, until } from '../support/engine.ts';
import { removeFolder, temporaryFolder } from '../support/services/service.ts';

/** A file that handlers wait for, so that every one of them is in the middle for as long as the test wants. */
async function signal(): Promise<{ readonly path: string; give(): Promise<void> }> {
  const folder = await temporaryFolder('signal');
  onTestFinished(() => removeFolder(folder));
  const path = join(folder, 'go');
  return { path, give: () => writeFile(path, '') };
}

/** The lease is longer than a live worker can be kept from the processor on a busy machine. */
const options = {
  leaseMs: 6000,
  renewMs: 500,
  recoverIntervalMs: 300,
  pollIntervalMs: 100,
};

test('ENG-4, ENG-8: SIGSTOP past the lease, then SIGCONT: the worker that wakes up changes nothing', {
  timeout: 300_000,
}, async () => {
  const bundle = await scene();
  const go = await signal();
  const { tallyman, kinds, rows } = bundle;
  const settings = { url: bundle.url, options: { ...options, concurrency: 50 } };
  const first = new Fleet(settings);
  await first.start(1);
  const [sleeper] = first.all;
  const sleeperId = await sleeper?.ready;
  const hows = ['plain', 'commit', 'in commit', 'until told'] as const;
  // Free ones, and the same at the head of lanes, with more behind them.
  const free = await tallyman.enqueueMany(
    kinds.paused,
    Array.from({ length: 20 }, (_, i) => ({ payload: { i, until: go.path, how: hows[i % 4] ?? 'plain' } })),
  );
  const lanes = await tallyman.enqueueMany(
    kinds.paused,
    hows.flatMap((how) =>
      [0, 1, 2].map((i) => ({ payload: { i, how, ...(i === 0 && { until: go.path }) }, lane: how })),
    ),
  );
  await until('every handler is in the middle', async () => (await rows('select 1 from runs')).length === 24);
  const open = `select 1 from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`;
  await until(
    'those in ctx.commit have opened their transactions',
    async () => (await rows(open)).length === 6,
  );
  sleeper?.signal('SIGSTOP');

  const second = new Fleet(settings);
  await second.start(1);
  const [other] = second.all;
  const otherId = await other?.ready;
  await drained(bundle);
  const state = async () => ({
    history: await rows('select id, status, attempts, worker, finished_at from tallyman.history order by id'),
    effects: await rows('select job, worker from effects order by id'),
    claims: await rows(`select token from tallyman.claims where worker = $1`, [sleeperId]),
    dead: await rows('select id from tallyman.dead_letters'),
  });
  const before = await state();
  // The server has ended transactions that did nothing for as long as a lease lasts: their locks hold nobody up.
  await until('the idle transactions are ended', async () => (await rows(open)).length === 0);
  await go.give();
  sleeper?.signal('SIGCONT');

  // Who waited for the signal has it; who tried to commit was refused; the rest was discarded without a word.
  const notes = () =>
    rows<{ note: string; n: number }>(
      'select note, count(*)::int as n from notes where worker = $1 group by 1 order by 1',
      [sleeperId],
    );
  await until(
    'every handler of the paused worker has come to its end',
    async () => (await notes()).reduce((sum, { n }) => sum + n, 0) >= 18,
  );
  await sleep(1000);
  expect(await notes()).toEqual([
    { note: 'refused: LeaseLostError', n: 6 },
    { note: 'refused: error', n: 6 },
    { note: 'signal: LeaseLostError', n: 6 },
  ]);
  expect(await state()).toEqual(before);
  expect(before.history.every((job) => (job as { worker: string }).worker === otherId)).toBe(true);
  expect(before.effects.every((effect) => (effect as { worker: string }).worker === otherId)).toBe(true);
  expect(before.claims).toEqual([]);
  expect(await amiss(bundle)).toEqual({});
  await expectFinishedOnce(bundle, free.length + lanes.length);

  // It is a worker like any other again.
  await second.killAll();
  await tallyman.enqueueMany(
    kinds.once,
    Array.from({ length: 20 }, (_, i) => ({ payload: { i }, lane: 'afterwards' })),
  );
  await drained(bundle);
  expect(sleeper?.end).toBeUndefined();
});

test('ENG-4, ENG-8: a worker that wakes up while another runs its jobs completes none of them', {
  timeout: 300_000,
}, async () => {
  const bundle = await scene();
  const { tallyman, kinds, rows } = bundle;
  const [go, again] = [await signal(), await signal()];
  const settings = { url: bundle.url, options: { ...options, concurrency: 20 } };
  const first = new Fleet(settings);
  await first.start(1);
  const [sleeper] = first.all;
  const sleeperId = await sleeper?.ready;
  const slow = { until: go.path, againUntil: again.path };
  const jobs = await tallyman.enqueueMany(
    kinds.paused,
    (['plain', 'commit', 'in commit'] as const).flatMap((how) => [
      { payload: { i: 0, how, ...slow } },
      { payload: { i: 0, how, ...slow }, lane: how },
      { payload: { i: 1, how }, lane: how },
    ]),
  );
  await until('every handler is in the middle', async () => (await rows('select 1 from runs')).length === 6);
  sleeper?.signal('SIGSTOP');
  const second = new Fleet(settings);
  await second.start(1);
  const otherId = await second.all[0]?.ready;
  await until(
    'the other is in the middle of one',
    async () => (await rows('select 1 from runs where worker = $1', [otherId])).length > 0,
  );
  // All its handlers go on at once, before it can learn from anybody that its lease is gone.
  await go.give();
  sleeper?.signal('SIGCONT');
  await until(
    'those of its handlers that commit have tried',
    async () => (await rows('select 1 from notes where worker = $1', [sleeperId])).length >= 4,
  );
  await sleep(500);
  // Whatever is done from now on is the other's doing, even what it has not begun.
  await first.killAll();
  expect(await rows('select 1 from tallyman.history')).toEqual([]);
  await again.give();
  await drained(bundle, second);
  await expectFinishedOnce(bundle, jobs.length);
  expect(await amiss(bundle)).toEqual({});
  // What it had begun before it was paused was not completed by it; what it has claimed anew since may have been.
  expect(await completedStale(bundle)).toEqual([]);
  expect(
    await rows(
      `select e.job from effects e join (select job, max(id) as last from runs group by job) l on l.job = e.job
         join runs r on r.id = l.last where r.worker <> e.worker`,
    ),
  ).toEqual([]);
});

test('ENG-8: a lease that is lost in the middle of ctx.commit takes the effect with it', async () => {
  const bundle = await engine();
  await bundle.rows('create table effects (job text, attempt int)');
  const outcomes: string[] = [];
  let runs = 0;
  const kind = defineKind({
    name: 'k',
    retry: { backoff: () => 0 },
    handler: async (_, ctx) => {
      runs += 1;
      const run = runs;
      const lost = new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
      await ctx
        .commit(async (tx) => {
          await tx.query('insert into effects values ($1, $2)', [ctx.id, run]);
          if (run > 1) return;
          await bundle.rows(`update tallyman.claims set expires_at = now() - interval '1 s'`);
          await bundle.rows(`select tallyman.recover('{}', '{"k": [0, 0, 0, 0, 0]}', 1000000)`);
          // The worker knows by now; what it knows must not make it ask for less.
          await lost;
        })
        .then(
          () => outcomes.push(`${run} committed`),
          (error: Error) => outcomes.push(`${run} ${error.name}`),
        );
    },
  });
  await bundle.work({ kinds: [kind], leaseMs: 9000, renewMs: 100 });
  const { id } = await bundle.tallyman.enqueue(kind, {});
  await until('both runs have ended', () => outcomes.length === 2);
  expect(outcomes.sort()).toEqual(['1 LeaseLostError', '2 committed']);
  expect(await bundle.rows('select * from effects')).toEqual([{ job: id, attempt: 2 }]);
});
