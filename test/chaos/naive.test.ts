/**
 * What breaks the naive design, as far as no other test shows it. Where it can be told in a few lines, the naive design
 * is there too, and is seen to break: a test that cannot fail proves nothing.
 *
 *   a paused worker completes what another runs        paused-worker.test.ts, engine/jobs/fencing.test.ts
 *   two jobs of one lane to two handlers               here, engine/lanes/lanes.test.ts
 *   SKIP LOCKED slides past a locked lane head         here
 *   `id > last` skips what committed late              engine/log/log.test.ts, engine/jobs/claim.test.ts
 *   a commit succeeded, the client saw an error        here, lost-connections.test.ts, engine/jobs/fencing.test.ts
 *   advisory locks and LISTEN behind a pooler          engine/database/pooler.test.ts
 *   an ORDER BY that no index serves                   engine/jobs/claim.test.ts
 *   one stuck lane starving all others                 engine/lanes/lanes.test.ts
 *   an old transaction that holds back vacuum          here
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { type Bundle, drained, engine, takeTurn, until } from '../support/engine.ts';

async function session({ url }: Bundle): Promise<pg.Client> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

describe('a lane whose head is locked', () => {
  test('the naive design slides past it', async () => {
    const bundle = await engine();
    await bundle.rows('create table naive (id bigserial primary key, lane text, n int)');
    await bundle.rows(`insert into naive (lane, n) select 'a', n from generate_series(0, 2) n`);
    const take = 'select n from naive order by id limit 1 for update skip locked';
    const [first, second] = [await session(bundle), await session(bundle)];
    await first.query('begin');
    await second.query('begin');
    expect((await first.query(take)).rows).toEqual([{ n: 0 }]);
    // The second of the lane, while the first is still being worked on.
    expect((await second.query(take)).rows).toEqual([{ n: 1 }]);
  });

  test('LANE-2: is not slid past: whatever locks the head, what is behind it waits', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = defineKind<{ n: number }>({
      name: 'k',
      handler: async ({ n }, ctx) => {
        log.push(`run ${n}`);
        await ctx.commit(async () => {});
        log.push(`done ${n}`);
      },
    });
    await bundle.tallyman.enqueueMany(
      kind,
      [0, 1, 2].map((n) => ({ payload: { n }, lane: 'a' })),
    );
    const other = await session(bundle);
    await other.query('begin');
    await other.query('select 1 from tallyman.jobs order by pos limit 1 for update');
    for (let i = 0; i < 3; i += 1) await bundle.work({ kinds: [kind] });
    await until('the head runs', () => log.length > 0);
    await sleep(500);
    expect(log).toEqual(['run 0']);
    await other.query('commit');
    await drained(bundle);
    expect(log).toEqual([0, 1, 2].flatMap((n) => [`run ${n}`, `done ${n}`]));
  });

  test('LANE-2: a bulk claim hands no two jobs of one lane to two workers', async () => {
    const bundle = await engine();
    const kind = defineKind<{ n: number }>({ name: 'k', handler: () => {} });
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 40 }, (_, n) => ({ payload: { n }, lane: `l${n % 8}` })),
    );
    const turns = [];
    for (let i = 0; i < 6; i += 1)
      turns.push(await takeTurn(bundle, `w${i}`, { total: 2, laneJobs: 1 + (i % 3), late: i % 2 === 0 }));
    const holders = new Map<string, number>();
    turns.forEach((turn, i) => {
      for (const job of turn.jobs) {
        const lane = job.lane?.key ?? '';
        expect(holders.get(lane) ?? i).toBe(i);
        holders.set(lane, i);
      }
    });
    expect(holders.size).toBe(8);
  });
});

describe('a commit succeeded, but the client saw an error', () => {
  /** The first enqueue reaches the server; its answer does not reach us. */
  async function answerLost() {
    const bundle = await engine();
    const { database } = bundle.tallyman;
    const run = database.run.bind(database);
    let lost = 0;
    database.run = async (statement, ...rest) => {
      const rows = await run(statement, ...rest);
      if (lost > 0 || !statement.name.startsWith('tm_enqueue')) return rows;
      lost += 1;
      throw Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' });
    };
    return bundle;
  }
  const kind = defineKind({ name: 'k', handler: () => {} });

  test('ENG-9: an enqueue says that its outcome is unknown, and is not repeated', async () => {
    const bundle = await answerLost();
    await expect(bundle.tallyman.enqueue(kind, {})).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' });
    expect(await bundle.rows('select id from tallyman.jobs')).toHaveLength(1);
  });

  test('ENG-10: with a dedupe key it is repeated, and adds one job', async () => {
    const bundle = await answerLost();
    const { id } = await bundle.tallyman.enqueue(kind, {}, { dedupeKey: 'order-1' });
    expect(await bundle.rows('select id from tallyman.jobs')).toEqual([{ id }]);
  });
});

describe('a transaction elsewhere that stays open holds back vacuum', () => {
  /** Pages that a statement touches, undone afterwards. Of two calls the better: the first may have to plan anew. */
  const pages = async (client: pg.Client, statement: string): Promise<number> =>
    Math.min(await touched(client, statement), await touched(client, statement));

  async function touched(client: pg.Client, statement: string): Promise<number> {
    await client.query('begin');
    const { rows } = await client.query(`explain (analyze, buffers, format json) ${statement}`);
    await client.query('rollback');
    const plan = rows[0]['QUERY PLAN'][0].Plan as Record<string, number>;
    return (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0);
  }

  const rounds = 6;
  const each = 1500;

  test('the naive design wades through what is done: a claim costs more each time', async () => {
    const bundle = await engine();
    await bundle.rows(
      `create table naive (id bigserial primary key, locked_until timestamptz, n int) with (autovacuum_enabled = off)`,
    );
    await bundle.rows('create index on naive (id) where locked_until is null');
    const old = await session(bundle);
    await old.query('begin isolation level repeatable read; select 1');
    const client = await session(bundle);
    await client.query('set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off');
    const find = (n: number) => `select id from naive where locked_until is null order by id limit ${n}`;
    const costs: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      await client.query('insert into naive (n) select generate_series(1, $1)', [each]);
      costs.push(await pages(client, find(100)));
      await client.query(
        `update naive set locked_until = now() + interval '1 min'
          where id = any (array(${find(each)} for update skip locked))`,
      );
      await client.query('delete from naive where locked_until is not null');
    }
    console.info(`chaos: naive, old snapshot held: pages to find 100: ${costs.join(', ')}`);
    expect(costs.at(-1)).toBeGreaterThan((costs[0] ?? 0) * 3);
  });

  test.each([
    ['a reader', 'begin isolation level repeatable read; select 1'],
    ['a writer', 'begin; select pg_current_xact_id()'],
  ])('ENG-2: claims go on finding work, at the same cost: %s', { timeout: 300_000 }, async (_, begin) => {
    const bundle = await engine();
    const kind = defineKind<{ n: number }>({ name: 'k', handler: () => {} });
    const add = (n: number) =>
      bundle.tallyman.enqueueMany(
        kind,
        Array.from({ length: n }, (_, i) => ({
          payload: { n: i },
          ...(i % 3 === 0 && { lane: `l${i % 90}` }),
        })),
      );
    // The streams are there, and the statistics are of a table in use.
    await add(300);
    const first = await bundle.work({ kinds: [kind] });
    await drained(bundle);
    await first.stop();
    const old = await session(bundle);
    await old.query(begin);
    const client = await session(bundle);
    const claim = (late: boolean) =>
      `select * from tallyman.claim('w', '{default}', '{1000000}', 100, '{k}', null, 10, ${late}, 60000, 120000, null)`;
    const costs = { ordinary: [] as number[], late: [] as number[] };
    for (let round = 0; round < rounds; round += 1) {
      await add(each);
      costs.ordinary.push(await pages(client, claim(false)));
      costs.late.push(await pages(client, claim(true)));
      const worker = await bundle.work({ kinds: [kind], maxPrefetch: 50 });
      await drained(bundle);
      await worker.stop();
    }
    console.info(
      `chaos: old transaction held by ${begin}: pages a claim of 100: ${costs.ordinary.join(', ')}; ` +
        `looking below the cursor, too: ${costs.late.join(', ')}`,
    );
    const [before = 0] = costs.ordinary;
    expect(Math.max(...costs.ordinary)).toBeLessThan(before * 2 + 50);
  });
});
