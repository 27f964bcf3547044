import { describe, expect, test } from 'vitest';
import { LeaseLostError } from '../../../src/engine/errors.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { engine, takeTurn, until } from '../../support/engine.ts';

type Bundle = Awaited<ReturnType<typeof engine>>;

/** As if the worker had been gone past its lease: somebody else takes its claims away. */
const takeOver = async (bundle: Bundle) => {
  await bundle.rows(`update tallyman.claims set expires_at = now() - interval '1 s'`);
  await bundle.rows(`select tallyman.recover('{}', '{}', 1000000)`);
};

/** A job that is all its worker holds is charged for the loss once this is written down. */
const knownToHaveStarted = (bundle: Bundle) =>
  until(
    'the start is written down',
    async () => (await bundle.rows('select 1 from tallyman.claims where started is not null')).length > 0,
  );

describe('fencing', () => {
  test('ENG-4: tokens only grow', async () => {
    const bundle = await engine();
    const kind = defineKind({ name: 'k', handler: () => {} });
    const tokens: bigint[] = [];
    for (let i = 0; i < 5; i += 1) {
      await bundle.tallyman.enqueue(kind, {});
      const { claims } = await takeTurn(bundle, 'w');
      tokens.push(BigInt(claims[0]?.token ?? 0));
    }
    expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)));
    expect(new Set(tokens).size).toBe(5);
  });

  test('ENG-4: renew, complete, fail, release and hand-over under a stale token change nothing', async () => {
    const bundle = await engine();
    const kind = defineKind({ name: 'k', handler: () => {} });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    const [old] = (await takeTurn(bundle, 'old')).jobs;
    await takeOver(bundle);
    await bundle.rows('update tallyman.jobs set scheduled_at = now()');
    await bundle.rows('select tallyman.promote(10)');
    const [fresh] = (await takeTurn(bundle, 'new', { isolated: 'suspect' })).jobs;
    const before = await bundle.rows('select * from tallyman.jobs, tallyman.claims');
    const [stale, live] = [old?.claim.token, fresh?.claim.token];

    expect(await bundle.rows(`select * from tallyman.renew('old', 60000, 60000)`)).toEqual([]);
    const settle = `select lost, missing
      from tallyman.settle($1, $2, '{1,2,3}', $3, null, null, null, null, null, 1000, null, null, null, null, null, null)`;
    for (const [token, pos] of [
      [stale, old?.pos],
      [stale, fresh?.pos],
      // The server crashed and the same token was drawn again: the worker's id tells them apart.
      [live, fresh?.pos],
    ])
      expect(await bundle.rows(settle, ['old', [token], [pos]])).toMatchObject([{ lost: [token] }]);
    const failure = { id, pos: fresh?.pos, token: stale, error: { code: 'X' }, delay_ms: 0 };
    expect(
      await bundle.rows(`select status from tallyman.fail('old', $1, 1000)`, [JSON.stringify([failure])]),
    ).toEqual([{ status: 'LOST' }]);
    await bundle.rows(`select tallyman.release('old', $1, $2)`, [[live], [fresh?.pos]]);
    await bundle.rows(`select tallyman.hand_over('old', $1, '{1}', $2, '{k}')`, [[live], [fresh?.pos]]);
    expect(await bundle.rows('select * from tallyman.jobs, tallyman.claims')).toEqual(before);
    // And the holder itself goes on.
    expect(await bundle.rows(settle, ['new', [live], [fresh?.pos]])).toEqual([{ lost: null, missing: [] }]);
    expect((await bundle.tallyman.jobs.get(id))?.status).toBe('SUCCEEDED');
  });

  test('ENG-4: a worker that lost its lease is told by its signal, and its result is discarded', async () => {
    const bundle = await engine();
    const log: string[] = [];
    let finish = () => {};
    const kind = defineKind({
      name: 'k',
      retry: { backoff: () => 0 },
      handler: async (_, ctx) => {
        log.push(`run ${ctx.attempt}`);
        if (ctx.attempt > 1) return;
        ctx.signal.addEventListener('abort', () => log.push(`aborted: ${ctx.signal.reason.name}`));
        await new Promise<void>((resolve) => {
          finish = resolve;
        });
      },
    });
    const worker = await bundle.work({ kinds: [kind], renewMs: 100, leaseMs: 9000 });
    worker.events.on('discarded', () => log.push('discarded'));
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it runs', () => log.length === 1);
    await knownToHaveStarted(bundle);
    await takeOver(bundle);
    await until('the signal fired', () => log.includes('aborted: LeaseLostError'));
    finish();
    await until('it ran again, elsewhere as far as the first run knows', async () => log.includes('run 2'));
    await until('it is done', async () => (await bundle.tallyman.jobs.get(id))?.status === 'SUCCEEDED');
    expect(log.filter((line) => line === 'discarded')).toHaveLength(1);
    expect((await bundle.tallyman.jobs.get(id))?.attempts).toBe(2);
  });

  test('ENG-3: the heartbeat survives a handler that blocks the event loop past the lease', async () => {
    const bundle = await engine();
    let runs = 0;
    const kind = defineKind({
      name: 'blocking',
      handler: () => {
        runs += 1;
        const end = Date.now() + 8000;
        while (Date.now() < end);
      },
    });
    const worker = bundle.tallyman.worker({
      kinds: [kind],
      leaseMs: 5000,
      renewMs: 300,
      recoverIntervalMs: 200,
    });
    const lost: string[] = [];
    worker.events.on('discarded', ({ reason }) => lost.push(reason));
    await worker.start();
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it is done', async () => (await bundle.tallyman.jobs.get(id))?.status === 'SUCCEEDED');
    expect(runs).toBe(1);
    expect(lost).toEqual([]);
    expect((await bundle.tallyman.jobs.get(id))?.attempts).toBe(1);
  });

  test('ENG-3: the heartbeat renews by the database’s clock, in one row a claim', async () => {
    const bundle = await engine();
    const renewedOften = Promise.withResolvers<void>();
    const kind = defineKind({ name: 'slow', handler: () => renewedOften.promise });
    await bundle.work({ kinds: [kind], leaseMs: 9000, renewMs: 150, concurrency: 50 });
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 50 }, () => ({ payload: {} })),
    );
    const renewed = new Set<string>();
    await until('it was renewed a few times', async () => {
      for (const row of await bundle.rows<{ t: string }>(
        'select token || $$ $$ || renewed_at as t from tallyman.claims',
      ))
        renewed.add(row.t);
      return renewed.size > 4;
    });
    renewedOften.resolve();
    await until('all are done', async () => (await bundle.tallyman.jobs.counts()).SUCCEEDED === 50);
    expect((await bundle.tallyman.jobs.list()).items.every((job) => job.attempts === 1)).toBe(true);
  });
});

describe('ctx.commit', () => {
  const table = 'create table effects (job text, n int)';
  const effects = (bundle: Bundle) =>
    bundle.rows<{ job: string; n: number }>('select * from effects order by n');

  test('ENG-8: effect and completion are one commit', async () => {
    const bundle = await engine();
    await bundle.rows(table);
    const kind = defineKind<{ n: number }>({
      name: 'k',
      handler: async ({ n }, ctx) =>
        ctx.commit(async (tx) => {
          await tx.query('insert into effects values ($1, $2)', [ctx.id, n]);
        }),
    });
    await bundle.work({ kinds: [kind] });
    const jobs = await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 20 }, (_, n) => ({ payload: { n } })),
    );
    await until('all are done', async () => (await bundle.tallyman.jobs.counts()).SUCCEEDED === 20);
    expect((await effects(bundle)).map((row) => row.job)).toEqual(jobs.map((job) => job.id));
    const [same] = await bundle.rows<{ n: string }>(
      'select count(*) as n from effects e join tallyman.history h on h.id = e.job::bigint and h.xmin::text = e.xmin::text',
    );
    expect(same?.n).toBe('20');
  });

  test('ENG-8: a throw inside rolls both back; the job is retried', async () => {
    const bundle = await engine();
    await bundle.rows(table);
    const kind = defineKind({
      name: 'k',
      retry: { backoff: () => 0 },
      handler: (_, ctx) =>
        ctx.commit(async (tx) => {
          await tx.query('insert into effects values ($1, $2)', [ctx.id, ctx.attempt]);
          if (ctx.attempt === 1) throw new Error('not yet');
        }),
    });
    await bundle.work({ kinds: [kind] });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it is done', async () => (await bundle.tallyman.jobs.get(id))?.status === 'SUCCEEDED');
    expect(await effects(bundle)).toEqual([{ job: id, n: 2 }]);
  });

  test('ENG-8: a worker that lost its lease writes nothing, however late it commits', async () => {
    const bundle = await engine();
    await bundle.rows(table);
    const outcomes: unknown[] = [];
    let go = () => {};
    const kind = defineKind({
      name: 'k',
      retry: { backoff: () => 0 },
      handler: async (_, ctx) => {
        if (ctx.attempt === 1)
          await new Promise<void>((resolve) => {
            go = resolve;
          });
        await ctx
          .commit(async (tx) => {
            await tx.query('insert into effects values ($1, $2)', [ctx.id, ctx.attempt]);
          })
          .catch((error: unknown) => outcomes.push(error));
      },
    });
    const worker = await bundle.work({ kinds: [kind] });
    let started = 0;
    worker.events.on('started', () => {
      started += 1;
    });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('the first run waits', () => started === 1);
    await knownToHaveStarted(bundle);
    await takeOver(bundle);
    const second = await bundle.work({ kinds: [kind] });
    await until('it is done', async () => (await bundle.tallyman.jobs.get(id))?.status === 'SUCCEEDED');
    go();
    await until('the first run gave up', () => outcomes.length === 1);
    expect(outcomes[0]).toBeInstanceOf(LeaseLostError);
    expect(await effects(bundle)).toEqual([{ job: id, n: 2 }]);
    expect(second.id).not.toBe(worker.id);
  });

  test('ENG-8: a cancelled job cannot commit', async () => {
    const bundle = await engine();
    await bundle.rows(table);
    const log: string[] = [];
    const kind = defineKind({
      name: 'k',
      handler: async (_, ctx) => {
        log.push('started');
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
        await ctx.commit((tx) => tx.query('insert into effects values ($1, 1)', [ctx.id]));
      },
    });
    const worker = await bundle.work({ kinds: [kind] });
    worker.events.on('discarded', ({ reason }) => log.push(reason));
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it runs', () => log.length === 1);
    await bundle.tallyman.jobs.cancel(id);
    await until('the run ended', () => log.length === 2);
    expect(log[1]).toBe('cancelled');
    expect(await effects(bundle)).toEqual([]);
    expect(await bundle.tallyman.jobs.get(id)).toMatchObject({ status: 'CANCELLED' });
  });

  test('a commit that succeeded while the client saw an error is not run twice', async () => {
    const bundle = await engine();
    await bundle.rows(table);
    let runs = 0;
    const kind = defineKind({
      name: 'k',
      retry: { backoff: () => 0 },
      handler: async (_, ctx) => {
        runs += 1;
        await ctx.commit(async (tx) => {
          await tx.query('insert into effects values ($1, $2)', [ctx.id, ctx.attempt]);
          // The commit reaches the server; its answer does not reach us.
          const query = tx.query.bind(tx) as (...asked: unknown[]) => Promise<unknown>;
          Object.assign(tx, {
            query: async (...asked: unknown[]) => {
              const result = await query(...asked);
              if (!String(asked[0]).endsWith('commit')) return result;
              Reflect.deleteProperty(tx, 'query');
              throw Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
            },
          });
        });
      },
    });
    const worker = await bundle.work({ kinds: [kind] });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it is done', async () => (await bundle.tallyman.jobs.get(id))?.status === 'SUCCEEDED');
    await worker.stop();
    expect(runs).toBe(1);
    expect(await effects(bundle)).toEqual([{ job: id, n: 1 }]);
  });
});
