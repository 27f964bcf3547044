import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import type { Worker } from '../../../src/engine/jobs/worker.ts';
import { Tallyman } from '../../../src/engine/tallyman.ts';
import { type Bundle, drained, engine, until } from '../../support/engine.ts';
import { seededRandom } from '../../support/seeded-random.ts';

/** Jobs that a worker claimed in the commit of their enqueue. */
function countAtOnce(worker: Worker): { jobs: number } {
  const count = { jobs: 0 };
  worker.events.on('claimed', ({ jobs, durationMs }) => {
    if (durationMs === undefined) count.jobs += jobs;
  });
  return count;
}

const enqueueClaimed = `tallyman.enqueue_claimed('default', 2::smallint, 'noted', 5::smallint, 'default', null, null, '[{}]',
  'w', 60000, 60000)`;

async function connected({ url }: Bundle): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

/** A kind that notes what it ran, and a worker on it that has come to rest. */
async function idle(bundle: Bundle, options: { concurrency?: number } = {}) {
  const ran: number[] = [];
  const kind = defineKind<{ n: number }>({ name: 'noted', handler: ({ n }) => void ran.push(n) });
  const worker = await bundle.work({ kinds: [kind], pollIntervalMs: 60_000, ...options });
  // The first one finds no stream yet, and goes the usual way.
  await bundle.tallyman.enqueue(kind, { n: 0 });
  await drained(bundle);
  await sleep(50);
  ran.length = 0;
  return { kind, ran, worker, atOnce: countAtOnce(worker) };
}

describe('an idle worker claims in the commit of an enqueue', () => {
  test('ENG-2: the job is held as soon as it is there; nobody is told of it, nobody asks for it', async () => {
    const bundle = await engine();
    const { kind, ran, worker, atOnce } = await idle(bundle);
    let hints = 0;
    worker.events.on('wakeup', ({ source }) => {
      if (source === 'local') hints += 1;
    });
    // One that comes while the worker is still about its last job goes the usual way.
    let usual = 0;
    for (let n = 0; atOnce.jobs < 5; n += 1) {
      const before = atOnce.jobs;
      await bundle.tallyman.enqueue(kind, { n });
      await until('it is done', async () => (await bundle.rows('select from tallyman.jobs')).length === 0);
      await sleep(20);
      if (atOnce.jobs === before) usual += 1;
      expect(ran).toHaveLength(n + 1);
      expect(n).toBeLessThan(100);
    }
    await until('the last hint has come', () => hints >= usual);
    expect(hints).toBe(usual);
    await until(
      'no claim is left',
      async () => (await bundle.rows('select from tallyman.claims')).length === 0,
    );
  });

  test('ENG-15: the handler is given what a claim would have given it', async () => {
    const bundle = await engine();
    const seen: unknown[] = [];
    const kind = defineKind<{ at: Date | string }>({
      name: 'told',
      handler: (payload, ctx) => {
        const { id, queue, priority, tenantId, correlationId, attempt, maxAttempts, lane, seq } = ctx;
        const { createdAt, scheduledAt } = ctx;
        seen.push({ payload, queue, priority, tenantId, correlationId, attempt, maxAttempts, lane, seq });
        expect(Math.abs(createdAt.getTime() - Date.now())).toBeLessThan(60_000);
        expect(scheduledAt).toEqual(createdAt);
        expect(id).toMatch(/^\d+$/);
      },
    });
    const worker = await bundle.work({ kinds: [kind], queues: ['default', 'other'] });
    const atOnce = countAtOnce(worker);
    const options = {
      queue: 'other',
      priority: 1,
      tenantId: 'acme',
      correlationId: 'c-1',
      maxAttempts: 7,
    } as const;
    const at = new Date(0);
    // The first finds no stream yet and goes the usual way.
    for (let n = 0; atOnce.jobs === 0; n += 1) {
      await bundle.tallyman.enqueue(kind, { at }, options);
      await drained(bundle);
      await sleep(20);
      expect(n).toBeLessThan(100);
    }
    const { queue, ...told } = options;
    const all = {
      ...told,
      queue,
      attempt: 1,
      lane: undefined,
      seq: undefined,
      payload: { at: at.toISOString() },
    };
    expect(seen.length).toBeGreaterThan(1);
    for (const given of seen) expect(given).toEqual(all);
  });

  test('ENG-13: a queue that is paused or has limits is left to a claim, which keeps to them', async () => {
    const bundle = await engine();
    const { kind, ran, atOnce } = await idle(bundle);
    await bundle.tallyman.queues.pause('default');
    await bundle.tallyman.enqueue(kind, { n: 1 });
    await sleep(200);
    expect(ran).toEqual([]);
    await bundle.tallyman.queues.resume('default');
    await until('it ran', () => ran.length === 1);
    await bundle.tallyman.queues.configure('default', { maxRunning: 5 });
    await bundle.tallyman.enqueue(kind, { n: 2 });
    await until('it ran', () => ran.length === 2);
    expect(atOnce.jobs).toBe(0);
  });

  test('ENG-2: what already waits comes first', async () => {
    const bundle = await engine();
    const { kind, ran, atOnce } = await idle(bundle, { concurrency: 1 });
    // From a transaction of somebody else's, whose hint is still on its way.
    await bundle.rows(
      `select tallyman.enqueue_plain('{default}', '{2}', '[{"s":1,"k":"noted","m":5,"t":"default","p":{"n":1}}]', false)`,
    );
    await bundle.tallyman.enqueue(kind, { n: 2 });
    await until('both ran', () => ran.length === 2);
    expect(ran).toEqual([1, 2]);
    expect(atOnce.jobs).toBe(0);
  });

  test('ENG-2: where somebody else has the turn it writes nothing and does not wait', async () => {
    const bundle = await engine();
    const [turn, client] = await Promise.all([connected(bundle), connected(bundle)]);
    await client.query(`select tallyman.streams_of('{default}', '{2}')`);
    await client.query(`set lock_timeout = '2s'`);
    const answer = async () => {
      const { rows } = await client.query<{ given: string[] | null }>(`select ${enqueueClaimed} as given`);
      return rows[0]?.given;
    };
    await turn.query('begin; select from tallyman.streams for update');
    expect(await answer()).toBeNull();
    expect(await bundle.rows('select from tallyman.jobs')).toEqual([]);
    await turn.query('commit');
    expect(await answer()).toHaveLength(4);
  });

  test('ENG-2: claims that are gone are left behind, though there are none of any other sort', async () => {
    const bundle = await engine();
    const client = await connected(bundle);
    await client.query(`select tallyman.streams_of('{default}', '{2}')`);
    const lag = async () => {
      const { rows } = await client.query<{ lag: number }>(
        `select (select last_value from tallyman.tokens)::int - first_token::int as lag from tallyman.streams`,
      );
      return rows[0]?.lag;
    };
    for (let n = 0; n < 250; n += 1) {
      await client.query(`select ${enqueueClaimed}`);
      if (n !== 120)
        await client.query(`delete from tallyman.claims where token <> 121; delete from tallyman.jobs`);
    }
    // Number 121 is held all the while: it must not be left behind.
    expect(await lag()).toBe(250 - 121);
    await client.query('delete from tallyman.claims');
    await client.query(`select ${enqueueClaimed}`);
    expect(await lag()).toBe(0);
  });

  test('ENG-2: what waits in other queues costs it nothing, though it was planned when nothing did', async () => {
    const bundle = await engine();
    const client = await connected(bundle);
    // As on the connection that it goes out on.
    await client.query('set enable_seqscan = off');
    await client.query('vacuum analyze tallyman.jobs, tallyman.lanes');
    await client.query(`select tallyman.streams_of('{default,other}', '{2,2}')`);
    const atOnce = async () => {
      const { rows } = await client.query<{ 'QUERY PLAN': string }>(
        `explain (analyze, buffers, costs off, timing off) select ${enqueueClaimed}`,
      );
      return Number(/shared hit=(\d+)/.exec(rows.map((row) => row['QUERY PLAN']).join())?.[1]);
    };
    for (let n = 0; n < 10; n += 1) await atOnce();
    const before = await atOnce();
    await client.query(
      `insert into tallyman.jobs (id, pos, stream, max_attempts, kind, tenant_id, payload)
       select -n, -n, (select id from tallyman.streams where queue = 'other'), 5, 'noted', 'default', '{}'
         from generate_series(1, 20000) n`,
    );
    expect(await atOnce()).toBeLessThan(before + 100);
    expect(await bundle.rows('select from tallyman.claims')).toHaveLength(12);
    await client.query('delete from tallyman.jobs where id < 0');
  });

  test('ENG-7: kinds and queues that are not its own, delays, lanes and keys are not for it', async () => {
    const bundle = await engine();
    const { kind, ran, atOnce } = await idle(bundle);
    const stranger = defineKind({ name: 'stranger', handler: () => {} });
    const { tallyman } = bundle;
    await tallyman.enqueue(stranger, {});
    await tallyman.enqueue(kind, { n: 0 }, { queue: 'elsewhere' });
    await tallyman.enqueue(kind, { n: 1 }, { lane: 'a' });
    await tallyman.enqueue(kind, { n: 2 }, { dedupeKey: 'a' });
    await tallyman.enqueue(kind, { n: 3 }, { delayMs: 60_000 });
    await until('two are done', async () => (await bundle.rows('select from tallyman.jobs')).length === 3);
    expect(ran.toSorted()).toEqual([1, 2]);
    expect(atOnce.jobs).toBe(0);
    const left = await bundle.rows<{ kind: string }>('select kind from tallyman.jobs order by id');
    expect(left.map((job) => job.kind)).toEqual(['stranger', 'noted', 'noted']);
  });

  test('ENG-2: two instances that feed themselves and each other: every job once, none forgotten', async () => {
    const bundle = await engine();
    const other = await Tallyman.open({ databaseUrl: bundle.url });
    const runs = new Map<string, number>();
    const kind = defineKind({
      name: 'counted',
      handler: (_, ctx) => void runs.set(ctx.id, (runs.get(ctx.id) ?? 0) + 1),
    });
    const counts: { jobs: number }[] = [];
    const atOnce = () => counts.reduce((sum, { jobs }) => sum + jobs, 0);
    const random = seededRandom();
    const began = Date.now();
    const feed = async (tallyman: Tallyman) => {
      const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 100 });
      await worker.start();
      counts.push(countAtOnce(worker));
      let ids: string[] = [];
      const enough = () => (Date.now() < began + 15_000 ? 60 : 1);
      while (Date.now() < began + 4000 || (atOnce() < enough() && Date.now() < began + 60_000)) {
        const many = random.chance(0.2) ? 5 : 1;
        const added = await Promise.all(Array.from({ length: many }, () => tallyman.enqueue(kind, {})));
        ids = ids.concat(added.map(({ id }) => id));
        if (random.chance(0.5)) await sleep(random.chance(0.2) ? 30 : random.between(0, 4));
      }
      return { worker, ids };
    };
    const fed = await Promise.all([feed(bundle.tallyman), feed(other), feed(other)]);
    await drained(bundle);
    await Promise.all(fed.map(({ worker }) => worker.stop()));
    await other.close();
    const ids = fed.flatMap(({ ids }) => ids);
    expect(atOnce()).toBeGreaterThan(0);
    expect([...runs.values()].filter((times) => times > 1)).toEqual([]);
    expect(runs.size).toBe(ids.length);
  });
});
