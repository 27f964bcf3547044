import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../../src/engine/index.ts';
import { allEnded, stage } from '../../support/liveness.ts';
import { privateServer } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

const ways = ['ctx.commit', 'tallyman.database'] as const;

describe.each(ways)('PostgreSQL is away for five seconds while handlers use %s', (way) => {
  test.each([
    { how: 'shut down', signal: 'SIGINT' as const },
    { how: 'killed', signal: 'SIGKILL' as const },
  ])('ENG-18: $how: no attempt is charged, all run', { timeout: 300_000 }, async ({ signal }) => {
    const server = await privateServer();
    const scene = await stage({ url: server.url });
    const { tallyman, rows, count } = scene;
    const kind = defineKind<{ i: number }>({
      name: 'k',
      retry: { maxAttempts: 1 },
      handler: async ({ i }, ctx) => {
        const insert = `insert into effects (job, i, worker) values ($1, $2, 'w')`;
        await sleep(50);
        if (way === 'ctx.commit') await ctx.commit((tx) => tx.query(insert, [ctx.id, i]));
        else await tallyman.database.query(insert, [ctx.id, i]);
      },
    });
    const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 200, stopTimeoutMs: 2000 });
    onTestFinished(() => worker.stop());
    await worker.start();
    const total = 600;
    await tallyman.enqueueMany(
      kind,
      Array.from({ length: total }, (_, i) => ({
        payload: { i },
        ...(i % 3 === 0 && { lane: `l${i % 7}` }),
      })),
    );
    await until('work is under way', async () => (await count('select count(*) from effects')) > 50);
    server.kill(signal);
    await sleep(5000);
    await server.restart();
    await until('the server answers again', () =>
      rows('select 1').then(
        () => true,
        () => false,
      ),
    );
    await allEnded(scene, 150_000);
    const letters = await rows(
      `select id, attempts, last_error ->> 'message' as error from tallyman.dead_letters`,
    );
    expect(letters).toEqual([]);
    expect(
      await rows('select status, attempts, count(*)::integer as n from tallyman.history group by 1, 2'),
    ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: total }]);
    expect(await count('select count(distinct job) from effects')).toBe(total);
    if (way === 'ctx.commit') expect(await count('select count(*) from effects')).toBe(total);
  });
});

test('ENG-18: a database whose default isolation level is repeatable read: all lane jobs run, in order', async () => {
  const scene = await stage({
    before: async (url) => {
      const client = new pg.Client(url);
      await client.connect();
      const name = new URL(url).pathname.slice(1);
      await client
        .query(`alter database ${name} set default_transaction_isolation = 'repeatable read'`)
        .finally(() => client.end());
    },
  });
  const { rows } = scene;
  const ran = new Map<string, { seq: bigint; n: number }[]>();
  const kind = defineKind<{ n: number }>({
    name: 'k',
    handler: ({ n }, ctx) => {
      const lane = ctx.lane ?? '';
      ran.set(lane, [...(ran.get(lane) ?? []), { seq: BigInt(ctx.seq ?? 0), n }]);
    },
  });
  for (const instance of await Promise.all([scene.another(), scene.another()])) {
    const worker = instance.worker({ kinds: [kind], pollIntervalMs: 200, stopTimeoutMs: 2000 });
    onTestFinished(() => worker.stop());
    await worker.start();
  }
  const [total, lanes] = [3000, 50];
  let next = 0;
  const enqueuer = async (): Promise<void> => {
    const tallyman = await scene.another({ poolSize: 3 });
    while (next < total) {
      const n = next;
      next += 1;
      const options = { lane: `lane-${n % lanes}` };
      if (n % 3 === 0) {
        // The caller chose the level of its own transaction; a serialization failure is its own to repeat.
        for (;;) {
          const error = await tallyman.database
            .transaction((tx) => tallyman.enqueue(kind, { n }, { ...options, tx }))
            .then(
              () => undefined,
              (reason: Error & { code?: string }) => reason,
            );
          if (!error) break;
          if (error.code !== '40001' && (error.cause as typeof error)?.code !== '40001') throw error;
        }
      } else await tallyman.enqueue(kind, { n }, options);
    }
  };
  await Promise.all([enqueuer(), enqueuer(), enqueuer(), enqueuer()]);
  await allEnded(scene);
  const all = [...ran.values()].flat();
  expect(new Set(all.map((run) => run.n)).size).toBe(total);
  expect(all).toHaveLength(total);
  for (const [lane, runs] of ran)
    expect({ lane, seqs: runs.map((run) => run.seq) }).toEqual({
      lane,
      seqs: runs.map((run) => run.seq).sort((a, b) => Number(a - b)),
    });
  expect(
    await rows('select status, attempts, count(*)::integer as n from tallyman.history group by 1, 2'),
  ).toEqual([{ status: 'SUCCEEDED', attempts: 1, n: total }]);
});
