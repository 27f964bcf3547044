import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import type { Database } from '../../src/engine/database/database.ts';
import type { RawRow } from '../../src/engine/database/hot-query.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import {
  drained as allDrained,
  amiss,
  expectFinishedOnce,
  Fleet,
  type Scene,
  scene,
} from '../support/chaos.ts';
import { ChaosProxy } from '../support/chaos-proxy.ts';
import { LaneWriter, laneNames, load } from '../support/chaos-writers.ts';
import { drained, engine, until } from '../support/engine.ts';
import type { Random } from '../support/random.ts';
import { seededRandom } from '../support/seeded-random.ts';

const options = {
  leaseMs: 4000,
  renewMs: 1000,
  recoverIntervalMs: 300,
  pollIntervalMs: 200,
  concurrency: 12,
  maxPrefetch: 40,
};

/** Lanes and free jobs, written by several at once for as long as the storm lasts. */
async function underLoad(bundle: Scene, random: Random, storm: () => Promise<void>) {
  // Long runs of plain jobs: their completions go in batches, and several batches may be under way.
  const once = (i: number) => i % 8 === 0;
  const writers = laneNames(60, 3).map(
    (names) => new LaneWriter(bundle, random, names, { ms: () => random.whole(3), once }),
  );
  let free = 0;
  const writing = load([
    ...writers.map((writer) => (ended: () => boolean) => writer.writeUntil(ended, 10)),
    async (ended) => {
      while (!ended()) {
        await bundle.tallyman.enqueueMany(
          bundle.kinds.once,
          Array.from({ length: 10 }, (_, i) => ({ payload: { i } })),
        );
        free += 10;
        await sleep(30);
      }
    },
  ]);
  await storm();
  await writing.stop();
  return { free, inLanes: writers.flatMap((writer) => writer.acknowledged).length };
}

async function expectAllWell(bundle: Scene, fleet: Fleet, jobs: number): Promise<void> {
  await allDrained(bundle, fleet);
  expect(await amiss(bundle)).toEqual({});
  await expectFinishedOnce(bundle, jobs);
  // Nobody had to start them again.
  expect(fleet.fallen).toEqual([]);
}

/** Runs the first statement of this name as `how` says. */
function onFirst(
  database: Database,
  name: string,
  how: (run: () => Promise<RawRow[]>) => Promise<RawRow[]>,
): void {
  const run = database.run.bind(database);
  let done = false;
  database.run = (statement, ...rest) => {
    if (done || statement.name !== name) return run(statement, ...rest);
    done = true;
    return how(() => run(statement, ...rest));
  };
}

const cutOff = () => Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });

describe('connections are lost', () => {
  test('ENG-2: a claim that was made but never answered is not held for ever by a worker that knows nothing of it', async () => {
    const bundle = await engine();
    const ran: number[] = [];
    const kind = defineKind<{ n: number }>({ name: 'k', handler: ({ n }) => ran.push(n) });
    await bundle.tallyman.enqueueMany(kind, [
      { payload: { n: 0 } },
      { payload: { n: 1 }, lane: 'a' },
      { payload: { n: 2 }, lane: 'a' },
    ]);
    onFirst(bundle.tallyman.database, 'tm_claim', async (run) => {
      await run();
      throw cutOff();
    });
    await bundle.work({ kinds: [kind], leaseMs: 6000, renewMs: 200, recoverIntervalMs: 100 });
    await until('all ran', () => ran.length === 3);
    await drained(bundle);
    expect(ran.filter((n) => n > 0)).toEqual([1, 2]);
    // It cost nobody an attempt.
    expect(await bundle.rows('select distinct attempts from tallyman.history')).toEqual([{ attempts: 1 }]);
  });

  test('LANE-4: a lane whose letting go had to be repeated, while a writer had it locked, is not forgotten', async () => {
    const bundle = await engine();
    const ran: string[] = [];
    const gate = Promise.withResolvers<void>();
    const kind = defineKind<{ n: number }>({
      name: 'k',
      handler: async ({ n }, ctx) => {
        ran.push(`${ctx.lane ?? 'free'}:${n}`);
        if (ctx.lane && n === 0) await gate.promise;
      },
    });
    const { tallyman } = bundle;
    await tallyman.enqueue(kind, { n: 0 }, { lane: 'a' });
    await bundle.work({ kinds: [kind] });
    // While the lane is held others come and go, and the floor passes its place: nothing looks there any more.
    await until('the floor has passed the lane', async () => {
      await tallyman.enqueue(kind, { n: 0 });
      await sleep(25);
      return (
        (await bundle.rows('select 1 from tallyman.lanes l join tallyman.streams s on s.floor > l.pos'))
          .length > 0
      );
    });
    const writer = new pg.Client(bundle.url);
    await writer.connect();
    await writer.query('begin');
    await tallyman.enqueue(kind, { n: 1 }, { lane: 'a', tx: writer });
    onFirst(tallyman.database, 'tm_settle', () => Promise.reject(cutOff()));
    gate.resolve();
    await until(
      'its job is confirmed',
      async () => (await bundle.rows(`select 1 from tallyman.history where lane = 'a'`)).length === 1,
    );
    await sleep(300);
    await writer.query('commit');
    await writer.end();
    await until('the one behind ran', () => ran.includes('a:1'));
    await drained(bundle);
  });

  test('LANE-4: a lane that was let go, whose answer was lost, is let go once', async () => {
    const bundle = await engine();
    const ran: number[] = [];
    const kind = defineKind<{ n: number }>({ name: 'k', handler: ({ n }) => ran.push(n) });
    onFirst(bundle.tallyman.database, 'tm_settle', async (run) => {
      await run();
      throw cutOff();
    });
    const worker = await bundle.work({ kinds: [kind] });
    for (const n of [0, 1, 2]) {
      await bundle.tallyman.enqueue(kind, { n }, { lane: 'a' });
      await until('it ran', () => ran.length === n + 1);
    }
    await drained(bundle);
    await until(
      'nothing is held',
      async () => (await bundle.rows('select 1 from tallyman.claims')).length === 0,
    );
    expect(worker.held).toBe(0);
    expect(ran).toEqual([0, 1, 2]);
  });

  test('ENG-7: an unknown kind that could not be handed over at first is handed over later', async () => {
    const bundle = await engine();
    const ran: number[] = [];
    const known = defineKind({ name: 'known', handler: () => {} });
    const strange = defineKind<{ n: number }>({ name: 'strange', handler: ({ n }) => ran.push(n) });
    const { database } = bundle.tallyman;
    const query = database.query.bind(database);
    let failures = 0;
    database.query = ((text: string, values?: unknown[]) => {
      if (!text.includes('hand_over') || failures > 0) return query(text, values);
      failures += 1;
      return Promise.reject(cutOff());
    }) as typeof database.query;
    await bundle.tallyman.enqueue(strange, { n: 1 });
    await bundle.work({ kinds: [known] });
    await until('handing over failed', () => failures === 1);
    await bundle.work({ kinds: [strange] });
    await until('it ran', () => ran.length === 1);
  });

  test('ENG-8, LANE-4: ten seconds of pg_terminate_backend against all of the workers’ backends', {
    timeout: 300_000,
  }, async () => {
    const random = seededRandom();
    const bundle = await scene();
    const fleet = new Fleet({ url: bundle.url, options });
    await fleet.start(3);
    let terminated = 0;
    const { free, inLanes } = await underLoad(bundle, random, async () => {
      for (const end = Date.now() + 10_000; Date.now() < end; await sleep(random.between(20, 400))) {
        const rows = await bundle.rows(
          `select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and application_name <> 'chaos test'`,
        );
        terminated += rows.length;
      }
    });
    await expectAllWell(bundle, fleet, free + inLanes);
    console.info(`chaos: ${terminated} backends terminated under ${free + inLanes} jobs`);
  });

  test('a commit succeeded, but the client saw an error: whatever the statement was, nothing is lost or done twice', {
    timeout: 300_000,
  }, async () => {
    const random = seededRandom();
    const bundle = await scene();
    const proxy = await ChaosProxy.before(bundle.url);
    const fleet = new Fleet({ url: proxy.url, options });
    await fleet.start(3);
    let cuts = 0;
    const { free, inLanes } = await underLoad(bundle, random, async () => {
      for (const end = Date.now() + 10_000; Date.now() < end; await sleep(random.between(20, 300)))
        cuts += proxy.cut(0.5, () => random.between(0, 1));
    });
    await expectAllWell(bundle, fleet, free + inLanes);
    console.info(`chaos: ${cuts} connections cut under ${free + inLanes} jobs`);
  });
});
