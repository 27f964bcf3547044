import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PermanentError } from '../../../src/engine/errors.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import type { LaneLock } from '../../../src/engine/locks/lane-lock.ts';
import { type Bundle, drained, engine, takeTurn, until } from '../../support/engine.ts';
import { seededRandom } from '../../support/seeded-random.ts';

type Step = { readonly n: number; readonly fail?: number; readonly permanent?: boolean };

/** A kind that notes what it ran, and fails as the payload says. */
function recorder(log: string[], more: object = {}) {
  const random = seededRandom();
  return defineKind<Step>({
    name: 'step',
    retry: { backoff: () => 50, maxAttempts: 3 },
    handler: async ({ n, fail = 0, permanent }, ctx) => {
      log.push(`${ctx.lane}:${n}${ctx.attempt > 1 ? `#${ctx.attempt}` : ''}`);
      await sleep(random.between(0, 3));
      if (permanent) throw new PermanentError('NO', 'never');
      if (ctx.attempt <= fail) throw new Error('again');
    },
    ...more,
  });
}

/** A statement in this database waits for a lock. */
const waitsForLock = async ({ rows }: Bundle): Promise<boolean> =>
  (await rows(`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`))
    .length === 1;

describe('lanes', () => {
  test('LANE-1: seq order is commit order: a lane is locked before its seq is drawn', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueue(kind, { n: 0 }, { lane: 'a' });
    const [first, second] = [new pg.Client(bundle.url), new pg.Client(bundle.url)];
    await Promise.all([first.connect(), second.connect()]);
    await first.query('begin');
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'a', tx: first });
    await second.query('begin');
    let through = false;
    const waiting = bundle.tallyman.enqueue(kind, { n: 2 }, { lane: 'a', tx: second }).then(() => {
      through = true;
    });
    await until('the second waits for the lane', () => waitsForLock(bundle));
    expect(through).toBe(false);
    await first.query('commit');
    await waiting;
    await second.query('commit');
    await Promise.all([first.end(), second.end()]);
    const rows = await bundle.rows<{ n: number }>(
      `select (payload ->> 'n')::int as n from tallyman.jobs order by pos`,
    );
    expect(rows.map((row) => row.n)).toEqual([0, 1, 2]);
  });

  test('LANE-1: writers that take several lanes in one transaction do not deadlock', async () => {
    const bundle = await engine();
    const kind = recorder([]);
    const lanes = ['c', 'a', 'e', 'b', 'd'];
    await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        bundle.tallyman.enqueueMany(
          kind,
          (i % 2 ? lanes : [...lanes].reverse()).map((lane) => ({ payload: { n: i }, lane })),
        ),
      ),
    );
    expect((await bundle.rows('select 1 from tallyman.jobs')).length).toBe(200);
  });

  test('LANE-2: several workers, many lanes: each lane strictly one after another, in order', async () => {
    const bundle = await engine();
    const random = seededRandom();
    const running = new Map<string, number>();
    const last = new Map<string, number>();
    const wrong: string[] = [];
    let done = 0;
    const kind = defineKind<{ n: number }>({
      name: 'step',
      handler: async ({ n }, ctx) => {
        const lane = ctx.lane ?? '';
        if (running.has(lane)) wrong.push(`${lane}: ${n} beside ${running.get(lane)}`);
        if ((last.get(lane) ?? -1) !== n - 1) wrong.push(`${lane}: ${n} after ${last.get(lane)}`);
        running.set(lane, n);
        await sleep(random.between(0, 2));
        running.delete(lane);
        last.set(lane, n);
        done += 1;
      },
    });
    for (let i = 0; i < 4; i += 1) await bundle.work({ kinds: [kind], concurrency: 8, laneBatch: 5 });
    const writers = Array.from({ length: 10 }, async (_, w) => {
      for (let n = 0; n < 30; n += 1)
        await bundle.tallyman.enqueueMany(
          kind,
          Array.from({ length: 4 }, (_, l) => ({ payload: { n }, lane: `${w}-${l}` })),
        );
    });
    await Promise.all(writers);
    await until('all are done', () => done === 1200, 60_000);
    expect(wrong).toEqual([]);
  });

  test('LANE-2: a busy lane is let go after a bounded number of jobs, so that others get their turn', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 30 }, (_, n) => ({ payload: { n }, lane: 'busy' })),
    );
    await bundle.tallyman.enqueue(kind, { n: 0 }, { lane: 'other' });
    await bundle.work({ kinds: [kind], concurrency: 1, laneBatch: 5 });
    await drained(bundle);
    expect(log.indexOf('other:0')).toBeLessThanOrEqual(5);
    expect(log.filter((line) => line.startsWith('busy'))).toEqual(
      Array.from({ length: 30 }, (_, n) => `busy:${n}`),
    );
  });

  test('LANE-3: a job that waits for its retry keeps the head; another lane goes on', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueueMany(kind, [
      { payload: { n: 1 }, lane: 'a' },
      { payload: { n: 2, fail: 2 }, lane: 'a' },
      { payload: { n: 3 }, lane: 'a' },
      { payload: { n: 1 }, lane: 'b' },
    ]);
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(log.filter((line) => line.startsWith('a'))).toEqual(['a:1', 'a:2', 'a:2#2', 'a:2#3', 'a:3']);
    expect(log.indexOf('b:1')).toBeLessThan(log.indexOf('a:2#2'));
  });

  test('LANE-3: skip goes on behind a dead letter and behind a failed job', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueueMany(kind, [
      { payload: { n: 1, fail: 9 }, lane: 'a' },
      { payload: { n: 2, permanent: true }, lane: 'a' },
      { payload: { n: 3 }, lane: 'a' },
    ]);
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(log).toEqual(['a:1', 'a:1#2', 'a:1#3', 'a:2', 'a:3']);
    expect(await bundle.tallyman.jobs.counts()).toMatchObject({ DEAD_LETTER: 1, FAILED: 1, SUCCEEDED: 1 });
  });

  test('LANE-3: block waits for a person, visibly; redrive to the head or unblock ends it', async () => {
    const bundle = await engine();
    const log: string[] = [];
    let mended = false;
    const kind = defineKind<{ n: number }>({
      name: 'step',
      retry: { backoff: () => 1, maxAttempts: 2 },
      lane: { policy: 'block' },
      handler: ({ n }, ctx) => {
        log.push(`${ctx.lane}:${n}`);
        if (n === 1 && !mended) throw new Error('broken');
      },
    });
    await bundle.work({ kinds: [kind] });
    for (const lane of ['a', 'b'])
      for (const n of [1, 2, 3]) await bundle.tallyman.enqueue(kind, { n }, { lane });
    await until(
      'both block',
      async () => (await bundle.tallyman.lanes.list({ state: 'blocked' })).items.length === 2,
    );
    const lane = await bundle.tallyman.lanes.get('a');
    expect(lane).toMatchObject({ state: 'blocked', pending: 2, policy: 'block' });
    await sleep(300);
    expect(log).toEqual(expect.not.arrayContaining(['a:2', 'b:2']));
    mended = true;
    await bundle.tallyman.deadLetters.redrive(lane?.blockedBy ?? '', { toHead: true });
    await until('lane a went on', () => log.includes('a:3'));
    expect(log.filter((line) => line.startsWith('a')).slice(-3)).toEqual(['a:1', 'a:2', 'a:3']);
    await bundle.tallyman.lanes.unblock('b');
    await until('lane b went on', () => log.includes('b:3'));
    expect(log.filter((line) => line.startsWith('b')).slice(-2)).toEqual(['b:2', 'b:3']);
    await expect(bundle.tallyman.lanes.unblock('b')).rejects.toThrow(/not blocked/);
    await expect(bundle.tallyman.lanes.unblock('nowhere')).rejects.toThrow(/no lane "nowhere"/);
  });

  test('LANE-4: a crash runs a lane again from its first unconfirmed job, in order', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 6 }, (_, n) => ({ payload: { n }, lane: 'a' })),
    );
    const { jobs: taken } = await takeTurn(bundle, 'dead', { laneJobs: 4 });
    expect(taken).toHaveLength(4);
    // Two of the four were confirmed when the worker died.
    const confirmed = taken.slice(0, 2);
    await bundle.rows(
      `select tallyman.settle('dead', $1, '{}', '{}', $2, $3, $3, $3, null, 1000, null, null, null, null, null, null)`,
      [[taken[0]?.claim.token], confirmed.map((job) => job.lane?.id), confirmed.map((job) => job.pos)],
    );
    await bundle.rows(`update tallyman.claims set expires_at = now() - interval '1 ms'`);
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(log).toEqual(['a:2', 'a:3', 'a:4', 'a:5']);
  });

  test('LANE-4: while the end of a job is being confirmed, that of the next in its lane waits; others do not', async () => {
    const bundle = await engine();
    const { tallyman } = bundle;
    const gate = Promise.withResolvers<void>();
    const kind = defineKind<{ n: number }>({
      name: 'step',
      handler: ({ n }) => (n === 1 ? undefined : gate.promise),
    });
    const inLane = await tallyman.enqueueMany(kind, [
      { payload: { n: 1 }, lane: 'a' },
      { payload: { n: 2 }, lane: 'a' },
    ]);
    const ids = inLane.map(({ id }) => id);
    const writer = await tallyman.database.dedicated();
    onTestFinished(() => writer.end());
    await writer.query('begin');
    await writer.query('select from tallyman.jobs where id = $1 for update', [ids[0]]);
    await bundle.work({ kinds: [kind] });
    await until('the end of the first is under way', () => waitsForLock(bundle));
    const free = await tallyman.enqueue(kind, { n: 3 });
    gate.resolve();
    const left = async () =>
      (await bundle.rows<{ id: string }>('select id from tallyman.jobs order by id')).map(({ id }) => id);
    await until('the free one is confirmed', async () => !(await left()).includes(free.id));
    await sleep(100);
    expect(await left()).toEqual(ids);
    await writer.query('rollback');
    await drained(bundle);
    const ended = await bundle.rows<{ id: string }>(
      `select id from tallyman.history where lane = 'a' order by finished_at, id`,
    );
    expect(ended.map(({ id }) => id)).toEqual(ids);
  });

  test('LANE-5: priority orders lanes against each other, never jobs inside one', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'low', priority: 3 });
    await bundle.tallyman.enqueue(kind, { n: 2 }, { lane: 'low', priority: 0 });
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'high', priority: 0 });
    await bundle.work({ kinds: [kind], concurrency: 1 });
    await drained(bundle);
    expect(log).toEqual(['high:1', 'low:1', 'low:2']);
  });

  test('LANE-6: latestOnly runs the newest of a kind; the older ones end as SUPERSEDED', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log, { lane: { latestOnly: true } });
    const other = defineKind<{ n: number }>({
      name: 'other',
      handler: ({ n }, ctx) => log.push(`${ctx.lane}:other${n}`),
    });
    for (let n = 0; n < 10; n += 1) await bundle.tallyman.enqueue(kind, { n }, { lane: 'a' });
    await bundle.tallyman.enqueue(other, { n: 1 }, { lane: 'a' });
    await bundle.tallyman.enqueue(kind, { n: 0 }, { lane: 'b', latestOnly: false });
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'b', latestOnly: false });
    await bundle.work({ kinds: [kind, other], laneBatch: 4 });
    await drained(bundle);
    expect(log.filter((line) => line.startsWith('a'))).toEqual(['a:9', 'a:other1']);
    expect(log.filter((line) => line.startsWith('b'))).toEqual(['b:0', 'b:1']);
    expect(await bundle.tallyman.jobs.counts()).toMatchObject({ SUPERSEDED: 9, SUCCEEDED: 4 });
  });

  test('a delayed job keeps its place: nothing behind it overtakes', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'a', delayMs: 400 });
    await bundle.tallyman.enqueue(kind, { n: 2 }, { lane: 'a' });
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(log).toEqual(['a:1', 'a:2']);
  });

  test('one stuck lane starves no other', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = defineKind<{ n: number }>({
      name: 'step',
      retry: { backoff: () => 600_000 },
      handler: ({ n }, ctx) => {
        if (ctx.lane === 'stuck') throw new Error('stuck');
        log.push(`${ctx.lane}:${n}`);
      },
    });
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 500 }, (_, n) => ({ payload: { n }, lane: 'stuck' })),
    );
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 50 }, (_, n) => ({ payload: { n }, lane: `l${n}` })),
    );
    await bundle.work({ kinds: [kind], concurrency: 2 });
    await until('the others ran', () => log.length === 50);
    await until(
      'the stuck one waits',
      async () => (await bundle.tallyman.lanes.get('stuck'))?.state === 'waiting',
    );
    expect(await bundle.tallyman.lanes.get('stuck')).toMatchObject({ pending: 500 });
  });

  test('a writer whose transaction stays open on one lane holds up the settling of no other', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueue(kind, { n: 0 }, { lane: 'open' });
    const writer = new pg.Client(bundle.url);
    await writer.connect();
    await writer.query('begin');
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'open', tx: writer });
    for (let n = 0; n < 20; n += 1) await bundle.tallyman.enqueue(kind, { n }, { lane: `l${n}` });
    await bundle.work({ kinds: [kind] });
    await until(
      'all that is committed ran and is confirmed',
      async () => (await bundle.tallyman.jobs.counts()).SUCCEEDED === 21,
    );
    await writer.query('commit');
    await writer.end();
    await until('the late one ran', () => log.includes('open:1'));
    await drained(bundle);
  });

  test('LANE-4: jobs that end while a settle of their lane is held up are confirmed behind it, in their order', async () => {
    const bundle = await engine();
    const gates = Array.from({ length: 6 }, () => Promise.withResolvers<void>());
    const kind = defineKind<{ n: number }>({ name: 'step', handler: ({ n }) => gates[n]?.promise });
    // The third to end is of another lane: with it as many settles are under way as may be.
    await bundle.tallyman.enqueueMany(
      kind,
      gates.map((_, n) => ({ payload: { n }, lane: n === 2 ? 'b' : 'a' })),
    );
    await bundle.work({ kinds: [kind] });
    await until('both are claimed', async () => {
      const [row] = await bundle.rows<{ lanes: string }>(
        'select sum(cardinality(positions)) as lanes from tallyman.claims',
      );
      return row?.lanes === '2';
    });
    const holder = new pg.Client(bundle.url);
    await holder.connect();
    await holder.query('begin');
    await holder.query('select 1 from tallyman.claims for update');
    for (const gate of gates) {
      gate.resolve();
      await sleep(30);
    }
    await holder.query('commit');
    await holder.end();
    await drained(bundle);
    expect((await bundle.tallyman.jobs.counts()).SUCCEEDED).toBe(6);
  });

  test('a lane that comes to rest while a writer commits into it is not forgotten', async () => {
    const random = seededRandom();
    const bundle = await engine();
    let done = 0;
    const kind = defineKind<{ n: number }>({
      name: 'step',
      handler: () => {
        done += 1;
      },
    });
    // Polling alone would hide a forgotten lane only if it looked at lanes at rest; it does not.
    await bundle.work({ kinds: [kind], concurrency: 4 });
    await Promise.all(
      Array.from({ length: 8 }, async (_, w) => {
        for (let n = 0; n < 60; n += 1) {
          await bundle.tallyman.enqueue(kind, { n }, { lane: `l${(w + n) % 3}` });
          await sleep(random.between(0, 4));
        }
      }),
    );
    await until('all are done', () => done === 480);
    await drained(bundle);
  });

  test('free jobs do not wait for the locks of lanes that came with them', async () => {
    const answer = Promise.withResolvers<void>();
    const slow: LaneLock = {
      name: 'slow',
      trouble: undefined,
      acquire: async (keys) => {
        await answer.promise;
        return { granted: keys, refused: [] };
      },
      renew: async () => [],
      release: async () => {},
      stop: async () => {},
    };
    const bundle = await engine({ laneLock: slow });
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'a' });
    await bundle.tallyman.enqueue(kind, { n: 2 });
    await bundle.work({ kinds: [kind] });
    await until('the free one ran', () => log.length === 1).finally(answer.resolve);
    await until('the other ran when it had its lock', () => log.length === 2);
    expect(log).toEqual(['undefined:2', 'a:1']);
  });

  test('a lane that retention removed comes back with the next job', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = recorder(log);
    await bundle.work({ kinds: [kind] });
    await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'a' });
    await until('it rests', async () => (await bundle.tallyman.lanes.get('a'))?.state === 'resting');
    await bundle.rows(`select tallyman.purge_leftovers('0 seconds', 100)`);
    expect(await bundle.tallyman.lanes.get('a')).toBeUndefined();
    await bundle.tallyman.enqueue(kind, { n: 2 }, { lane: 'a' });
    await until('it ran', () => log.length === 2);
  });
});
