import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { LeaseLostError } from '../../../src/engine/errors.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { ChaosProxy } from '../../support/chaos-proxy.ts';
import { type Bundle, drained, engine, until } from '../../support/engine.ts';
import { seededRandom } from '../../support/seeded-random.ts';

const insert = 'insert into effects (job, n) values ($1, $2) returning n';
const withTable = async (bundle: Bundle) => {
  await bundle.rows('create table effects (job bigint, n int check (n <> 13))');
  return bundle;
};
const effects = async (bundle: Bundle) =>
  (await bundle.rows<{ n: number }>('select n from effects order by n')).map(({ n }) => n);
const upTo = (count: number) => Array.from({ length: count }, (_, n) => ({ payload: { n } }));

describe('ctx.commit with a statement', () => {
  test('ENG-8: effect and completion are one commit, of several jobs together; the handler gets the result', async () => {
    const bundle = await withTable(await engine());
    const results: unknown[] = [];
    const kind = defineKind<{ n: number }>({
      name: 'k',
      handler: async ({ n }, ctx) => {
        const { rows } = await ctx.commit<{ n: number }>(insert, [ctx.id, n + 100]);
        results.push(rows[0]?.n === n + 100);
      },
    });
    await bundle.tallyman.enqueueMany(kind, upTo(50));
    await bundle.work({ kinds: [kind], concurrency: 20 });
    await until('all are done', async () => (await bundle.tallyman.jobs.counts()).SUCCEEDED === 50);
    // Handlers are told a moment after the commit.
    await until('all handlers are told', () => results.length === 50);
    expect(results).toEqual(Array.from({ length: 50 }, () => true));
    const [same] = await bundle.rows<{ jobs: string; commits: string }>(
      `select count(*) as jobs, count(distinct e.xmin::text) as commits from effects e
         join tallyman.history h on h.id = e.job and h.xmin::text = e.xmin::text`,
    );
    expect(same?.jobs).toBe('50');
    expect(Number(same?.commits)).toBeLessThan(50);
  });

  test('ENG-8: a statement that fails fails its own job, and the others of its commit are written once', async () => {
    const bundle = await withTable(await engine());
    const kind = defineKind<{ n: number }>({
      name: 'k',
      retry: { maxAttempts: 2, backoff: () => 0 },
      handler: async ({ n }, ctx) => {
        await ctx.commit(insert, [ctx.id, n]);
      },
    });
    await bundle.tallyman.enqueueMany(kind, upTo(30));
    await bundle.work({ kinds: [kind], concurrency: 30 });
    await drained(bundle);
    expect(await effects(bundle)).toEqual(upTo(30).flatMap(({ payload: { n } }) => (n === 13 ? [] : [n])));
    const { items } = await bundle.tallyman.deadLetters.list();
    expect(items.map(({ payload, lastError }) => [payload, lastError?.code])).toEqual([[{ n: 13 }, '23514']]);
  });

  test('ENG-4, ENG-8: a job that was cancelled writes nothing, and its neighbours do', async () => {
    const bundle = await withTable(await engine());
    const outcomes: string[] = [];
    const started = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    let waiting = 0;
    const kind = defineKind<{ n: number }>({
      name: 'k',
      handler: async ({ n }, ctx) => {
        waiting += 1;
        if (waiting === 4) started.resolve();
        await go.promise;
        await ctx.commit(insert, [ctx.id, n]).then(
          () => outcomes.push(`${n} committed`),
          (error: unknown) => outcomes.push(`${n} ${error instanceof LeaseLostError ? 'lost' : error}`),
        );
      },
    });
    const [taken] = await bundle.tallyman.enqueueMany(kind, upTo(4));
    await bundle.work({ kinds: [kind], concurrency: 4 });
    await started.promise;
    // Somebody cancels one of the four while they run.
    await bundle.tallyman.jobs.cancel(taken?.id ?? '');
    go.resolve();
    await until('all have tried', () => outcomes.length === 4);
    expect(outcomes.sort()).toEqual(['0 lost', '1 committed', '2 committed', '3 committed']);
    expect(await effects(bundle)).toEqual([1, 2, 3]);
  });

  test('ENG-8, LANE-4: in lanes effects keep their order; connections that are cut cost nothing', {
    timeout: 120_000,
  }, async () => {
    const bundle = await withTable(await engine());
    const proxy = await ChaosProxy.before(bundle.url);
    const { Tallyman } = await import('../../../src/engine/tallyman.ts');
    const { silentLogger } = await import('../../../src/engine/logger.ts');
    const behind = await Tallyman.open({ databaseUrl: proxy.url, logger: silentLogger });
    await bundle.rows('alter table effects add column lane text, add column id bigserial');
    const kind = defineKind<{ n: number }>({
      name: 'k',
      retry: { maxAttempts: 1000, backoff: () => 20 },
      handler: async ({ n }, ctx) => {
        await sleep(10);
        await ctx.commit('insert into effects (job, n, lane) values ($1, $2, $3)', [ctx.id, n, ctx.lane]);
      },
    });
    for (let lane = 0; lane < 10; lane += 1)
      await bundle.tallyman.enqueueMany(
        kind,
        Array.from({ length: 60 }, (_, n) => ({ payload: { n: n + 100 }, lane: `lane-${lane}` })),
      );
    const worker = behind.worker({ kinds: [kind], pollIntervalMs: 100, leaseMs: 3000, renewMs: 500 });
    const random = seededRandom();
    let cuts = 0;
    const cutting = setInterval(() => {
      cuts += proxy.cut(0.3, random.next);
    }, 60);
    try {
      await worker.start();
      await until('most are done under fire', async () => (await effects(bundle)).length > 200, 30_000).catch(
        () => {},
      );
    } finally {
      clearInterval(cutting);
    }
    expect(cuts).toBeGreaterThan(3);
    await drained(bundle);
    await worker.stop();
    await behind.close();
    expect(
      await bundle.rows(
        `select lane, count(*)::int as rows, count(distinct job)::int as jobs,
                bool_and(n = want)::text as "inOrder"
           from (select *, 99 + row_number() over (partition by lane order by id) as want from effects) e
          group by lane order by lane`,
      ),
    ).toEqual(
      Array.from({ length: 10 }, (_, lane) => ({
        lane: `lane-${lane}`,
        rows: 60,
        jobs: 60,
        inOrder: 'true',
      })),
    );
  });
});
