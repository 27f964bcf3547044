import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { ClaimedJob } from '../../../src/engine/jobs/claim.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { type Bundle, drained, engine, takeTurn, until } from '../../support/engine.ts';

const noop = defineKind<{ i?: number }>({ name: 'noop', handler: () => {} });

const take = async (bundle: Bundle, worker: string, total: number) => {
  const answer = await takeTurn(bundle, worker, { total });
  return { ...answer, ids: answer.jobs.map((job) => job.id) };
};

describe('claim', () => {
  test('ENG-2: by priority, then due time', async () => {
    const bundle = await engine();
    const { tallyman } = bundle;
    const late = await tallyman.enqueue(noop, {}, { priority: 3 });
    const first = await tallyman.enqueue(noop, {});
    const second = await tallyman.enqueue(noop, {});
    const critical = await tallyman.enqueue(noop, {}, { priority: 0 });
    // One turn at one stream each.
    const turns = [await take(bundle, 'w', 10), await take(bundle, 'w', 10), await take(bundle, 'w', 10)];
    expect(turns.flatMap(({ ids }) => ids)).toEqual([critical, first, second, late].map((job) => job.id));
    expect(turns.map(({ more }) => more)).toEqual([true, true, false]);
  });

  test('ENG-2: many claimers side by side never hold one job twice, and miss none', async () => {
    const bundle = await engine();
    await bundle.tallyman.enqueueMany(
      noop,
      Array.from({ length: 2000 }, (_, i) => ({ payload: { i } })),
    );
    const seen = new Set<string>();
    let twice = 0;
    const claimer = async (worker: string) => {
      for (;;) {
        const { ids } = await take(bundle, worker, 7 + worker.length);
        if (ids.length === 0) return;
        for (const id of ids) {
          if (seen.has(id)) twice += 1;
          seen.add(id);
        }
      }
    };
    await Promise.all(['a', 'bb', 'ccc', 'dddd', 'eeeee', 'ffffff'].map(claimer));
    expect(twice).toBe(0);
    expect(seen.size).toBe(2000);
  });

  test('ENG-2: a job whose lease has expired is claimable again, at once', async () => {
    const bundle = await engine();
    await bundle.tallyman.enqueue(noop, {});
    const dead = await take(bundle, 'dead', 10);
    expect(dead.ids).toHaveLength(1);
    expect((await take(bundle, 'next', 10)).ids).toHaveLength(0);
    await bundle.rows(`update tallyman.claims set expires_at = now() - interval '1 ms'`);
    const runs: number[] = [];
    const kind = defineKind({
      name: 'noop',
      retry: { backoff: () => 0 },
      handler: (_, ctx) => runs.push(ctx.attempt),
    });
    await bundle.work({ kinds: [kind] });
    await until('it ran again', () => runs.length === 1);
    // Nobody knows whether it had started, so it has lost nothing.
    expect(runs).toEqual([1]);
  });

  test('a job that commits late with a smaller position is found', async () => {
    const bundle = await engine();
    const late = new pg.Client({ connectionString: bundle.url });
    await late.connect();
    await late.query('begin');
    const [{ id: lateId } = { id: '' }] = await bundle.tallyman
      .enqueue(noop, {}, { tx: late })
      .then((answer) => [answer]);
    const early = await bundle.tallyman.enqueue(noop, {});
    expect(BigInt(lateId) < BigInt(early.id)).toBe(true);
    expect((await take(bundle, 'w', 10)).ids).toEqual([early.id]);
    // Many turns pass by: the floor must not pass a transaction that is still open.
    for (let i = 0; i < 5; i += 1) {
      const { id } = await bundle.tallyman.enqueue(noop, {});
      expect((await take(bundle, 'w', 10)).ids).toEqual([id]);
    }
    await late.query('commit');
    await late.end();
    expect((await take(bundle, 'w', 10)).ids).toEqual([lateId]);
  });

  test('ENG-16: one that commits late is found though work of a higher priority is there at every look', async () => {
    const bundle = await engine();
    const late = new pg.Client({ connectionString: bundle.url });
    await late.connect();
    await late.query('begin');
    const lateJob = await bundle.tallyman.enqueue(noop, {}, { tx: late, priority: 3 });
    const early = await bundle.tallyman.enqueue(noop, {}, { priority: 3 });
    expect((await take(bundle, 'w', 1)).ids).toEqual([early.id]);
    await late.query('commit');
    await late.end();
    await bundle.tallyman.enqueue(noop, {}, { priority: 0 });
    expect((await take(bundle, 'w', 1)).ids).toEqual([lateJob.id]);
  });

  test('also one that no transaction with a greater id outran', async () => {
    const bundle = await engine();
    await bundle.rows(`select tallyman.stream_of('default', 2::smallint)`);
    const [early, late] = [0, 1].map(() => new pg.Client({ connectionString: bundle.url }));
    if (!early || !late) throw new Error('two clients');
    for (const client of [early, late]) {
      await client.connect();
      await client.query('begin; select pg_current_xact_id()');
    }
    const lateJob = await bundle.tallyman.enqueue(noop, {}, { tx: late });
    const earlyJob = await bundle.tallyman.enqueue(noop, {}, { tx: early });
    await early.query('commit');
    // The greatest id that has completed is now the one just below that of the open transaction.
    expect((await take(bundle, 'w', 10)).ids).toEqual([earlyJob.id]);
    for (let i = 0; i < 5; i += 1) expect((await take(bundle, 'w', 10)).ids).toEqual([]);
    await late.query('commit');
    expect((await take(bundle, 'w', 10)).ids).toEqual([lateJob.id]);
    await Promise.all([early.end(), late.end()]);
  });

  test('the floor follows once nobody can commit below it', async () => {
    const bundle = await engine();
    // Transactions of other tests on the same server hold it back for as long as they run.
    await until('the floor has moved', async () => {
      await bundle.tallyman.enqueue(noop, {});
      await take(bundle, 'w', 50);
      const [stream] = await bundle.rows<{ floor: string; cursor: string }>(
        'select floor, cursor from tallyman.streams where id = 1',
      );
      expect(Number(stream?.floor)).toBeLessThanOrEqual(Number(stream?.cursor));
      return Number(stream?.floor) > 3;
    });
  });

  test('released positions come first again, those still held are left out', async () => {
    const bundle = await engine();
    const jobs = await bundle.tallyman.enqueueMany(
      noop,
      Array.from({ length: 6 }, () => ({ payload: {} })),
    );
    const [a, b, c, d, e, f] = jobs.map((job) => job.id);
    const first = await take(bundle, 'w', 4);
    const token = first.claims[0]?.token;
    await bundle.rows('select tallyman.release($1, $2, $3)', ['w', [token, token], [b, c]]);
    expect((await take(bundle, 'x', 10)).ids).toEqual([b, c, e, f]);
    expect(first.ids).toEqual([a, b, c, d]);
  });

  test('ENG-2: free jobs and lanes are taken by position, so many of both together, none twice and none passed over', async () => {
    const bundle = await engine();
    const names = Array.from({ length: 9 }, (_, i) => (i % 2 === 0 || i > 6 ? `free ${i}` : `lane ${i}`));
    for (const name of names)
      await bundle.tallyman.enqueue(noop, {}, name.startsWith('lane') ? { lane: name } : {});
    const [{ ids } = { ids: [] }] = await bundle.rows<{ ids: string[] }>(
      'select array_agg(id::text order by id) as ids from tallyman.jobs',
    );
    const turns: string[][] = [];
    for (const total of [4, 1, 3, 5]) {
      const { items } = await takeTurn(bundle, 'w', { total });
      turns.push(
        items.map((item) => (item instanceof ClaimedJob ? `free ${ids.indexOf(item.id)}` : item.key)),
      );
    }
    expect(turns).toEqual([names.slice(0, 4), names.slice(4, 5), names.slice(5, 8), names.slice(8)]);
    const [held] = await bundle.rows<{ n: number }>(
      'select sum(cardinality(positions))::int as n from tallyman.claims where max_pos = (select max(p) from unnest(positions) p)',
    );
    expect(held?.n).toBe(9);
  });

  test('free jobs, lanes and a lane of which nothing is left, of several kinds and times, in one claim', async () => {
    const bundle = await engine();
    const { tallyman } = bundle;
    const other = defineKind<{ i?: number }>({ name: 'other "kind"', handler: () => {} });
    await tallyman.enqueue(noop, { i: 1 });
    await tallyman.enqueue(noop, { i: 2 }, { lane: 'a' });
    await tallyman.enqueue(other, { i: 3 }, { lane: 'gone' });
    await tallyman.enqueue(other, { i: 4 }, { tenantId: 'acme', maxAttempts: 9, correlationId: 'c' });
    await tallyman.enqueue(other, { i: 5 }, { lane: 'a' });
    await tallyman.enqueue(noop, { i: 6 }, { lane: 'b' });
    await tallyman.enqueue(noop, { i: 7 }, { lane: 'b', delayMs: 60_000 });
    await tallyman.enqueue(noop, { i: 8 }, { lane: 'b' });
    await bundle.rows(`delete from tallyman.jobs where payload::text = '{"i":3}'`);
    const { items, claims } = await takeTurn(bundle, 'w', { total: 10 });
    const told = (job: ClaimedJob) => ({ kind: job.kind, ...(job.payload as object) });
    const seen = items.map((item) =>
      item instanceof ClaimedJob ? told(item) : [item.key, ...item.jobs.map(told)],
    );
    expect(seen).toEqual([
      { kind: 'noop', i: 1 },
      ['a', { kind: 'noop', i: 2 }, { kind: 'other "kind"', i: 5 }],
      ['gone'],
      { kind: 'other "kind"', i: 4 },
      ['b', { kind: 'noop', i: 6 }],
    ]);
    expect(items[3]).toMatchObject({ tenantId: 'acme', maxAttempts: 9, correlationId: 'c', attempts: 0 });
    expect(items[0]).toMatchObject({ tenantId: 'default', maxAttempts: 5 });
    expect(claims.map(({ left, jobs }) => [left, jobs.length])).toEqual([[5, 5]]);
    const [row] = await bundle.rows<{ created: string }>(
      `select max(date_part('epoch', created_at))::text as created from tallyman.jobs where payload::text = '{"i":4}'`,
    );
    expect((items[3] as ClaimedJob).createdAt).toBe(Number(row?.created));
    await bundle.rows(`delete from tallyman.claims`);
    // With nothing but free jobs beside it, too.
    await bundle.rows(`delete from tallyman.jobs where lane is not null`);
    const again = await takeTurn(bundle, 'w', { total: 10, late: true });
    expect(again.jobs.map(({ payload }) => payload)).toEqual([{ i: 1 }, { i: 4 }]);
  });

  test('a claim is bounded in bytes: large payloads come when their job starts, and not before', async () => {
    const bundle = await engine();
    const large = randomBytes(40_000).toString('base64');
    const seen: string[] = [];
    const kind = defineKind<{ text: string }>({
      name: 'k',
      handler: ({ text }, ctx) => seen.push(`${ctx.lane}:${text}`),
    });
    await bundle.tallyman.enqueueMany(kind, [
      { payload: { text: 'small' } },
      { payload: { text: large } },
      { payload: { text: 'small' }, lane: 'l' },
      { payload: { text: large }, lane: 'l' },
      { payload: { text: 'last' }, lane: 'l' },
    ]);
    const { jobs, claims } = await takeTurn(bundle, 'w', { kinds: ['k'] });
    const small = { text: 'small' };
    expect(jobs.map((job) => job.payload)).toEqual([small, undefined, small, undefined, { text: 'last' }]);
    await bundle.rows('delete from tallyman.claims where token = $1', [claims[0]?.token]);
    await bundle.rows('update tallyman.streams set cursor = 0, floor = 0');
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(seen.filter((entry) => entry.startsWith('undefined:')).sort()).toEqual(
      ['undefined:small', `undefined:${large}`].sort(),
    );
    expect(seen.filter((entry) => entry.startsWith('l:'))).toEqual(['l:small', `l:${large}`, 'l:last']);
  });

  test('no sort, no sequential scan, and the same pages read with 1,000 and with 1,000,000 jobs waiting', {
    timeout: 600_000,
  }, async () => {
    const bundle = await engine({ queryTimeoutMs: 0 });
    const pages: number[] = [];
    for (const waiting of [1000, 999_000]) {
      await bundle.rows(
        `insert into tallyman.jobs (id, pos, stream, max_attempts, kind, tenant_id, payload)
         select n, n, tallyman.stream_of('default', 2::smallint), 5, 'noop', 'default', '{}'
           from (select nextval('tallyman.positions') as n from generate_series(1, $1)) drawn`,
        [waiting],
      );
      const client = new pg.Client({ connectionString: bundle.url });
      await client.connect();
      const plans: string[] = [];
      client.on('notice', (notice) => plans.push(notice.message ?? ''));
      await client.query(`load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on;
        set auto_explain.log_nested_statements = on; set auto_explain.log_buffers = on; set client_min_messages = log`);
      await client.query(
        `select * from tallyman.claim('w', '{default}', '{1000000}', 100, '{noop}', null, 10, true, 60000, 120000, null)`,
      );
      await client.end();
      const scans = plans.filter((plan) => /Query Text:[\s\S]*with lane as materialized/.test(plan));
      expect(scans).toHaveLength(1);
      expect(scans[0]).toMatch(/Index (Only )?Scan using jobs_ready/);
      expect(plans.join('\n')).not.toMatch(/Seq Scan on (jobs|lanes|claims)/);
      expect(scans[0]).not.toMatch(/^\s*(->)?\s*Sort\s+\(/m);
      pages.push(
        Math.max(...[...(scans[0] ?? '').matchAll(/shared hit=(\d+)/g)].map((match) => Number(match[1]))),
      );
    }
    const [small = 0, large = 0] = pages;
    expect(large).toBeLessThan(small * 2 + 20);
  });
});
