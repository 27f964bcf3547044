import { describe, expect, test } from 'vitest';
import { type Isolation, markStarted } from '../../../src/engine/jobs/claim.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import type { EnqueueOptions } from '../../../src/engine/jobs/new-job.ts';
import { engine, takeTurn, until } from '../../support/engine.ts';

describe('crashes', () => {
  type Bundle = Awaited<ReturnType<typeof engine>>;
  const noop = defineKind({ name: 'noop', retry: { backoff: () => 0 }, handler: () => {} });
  let dead = 0;
  /** Takes a turn as a worker that dies at once. `started`: it has written down that the jobs start. */
  const crash = async (
    bundle: Bundle,
    total: number,
    more: { readonly isolated?: Isolation; readonly started?: boolean; readonly worker?: string } = {},
  ) => {
    dead += 1;
    const worker = more.worker ?? `dead-${dead}`;
    const { jobs } = await takeTurn(bundle, worker, { total, isolated: more.isolated, leaseMs: 1000 });
    if (more.started) await markStarted(bundle.tallyman.database, worker, jobs);
    await bundle.rows(`update tallyman.claims set expires_at = now() where worker = $1`, [worker]);
    return jobs.map((job) => job.id);
  };
  const recover = (bundle: Bundle) =>
    bundle.rows<{ freed: number; counted: string | null; status: string | null }>(
      `select freed, counted, status from tallyman.recover('{}', '{"noop": [0, 0, 0, 0, 0, 0]}', 1000000)`,
    );
  const charged = async (bundle: Bundle) =>
    (
      await bundle.rows<{ attempts: number; crashes: number; variant: string }>(
        `select j.attempts, coalesce(cardinality(j.suspected_of), 0) as crashes, s.variant
           from tallyman.jobs j join tallyman.streams s on s.id = j.stream order by j.id`,
      )
    ).map(({ attempts, crashes, variant }) => [attempts, crashes, variant]);
  const enqueued = async (bundle: Bundle, n: number, options: EnqueueOptions = {}) =>
    (
      await bundle.tallyman.enqueueMany(
        noop,
        Array.from({ length: n }, () => ({ payload: {}, ...options })),
      )
    ).map((job) => job.id);

  test('ENG-17: nobody is charged for a crash among several; the first suspect that dies alone is charged for both', async () => {
    const bundle = await engine();
    const [a, b, c] = await enqueued(bundle, 3);
    expect(await crash(bundle, 10)).toHaveLength(3);
    expect(await recover(bundle)).toEqual([{ freed: 3, counted: null, status: null }]);
    const suspect = [0, 1, 'suspect'];
    expect(await charged(bundle)).toEqual([suspect, suspect, suspect]);
    // From now on one at a time, in order.
    expect(await crash(bundle, 10)).toEqual([]);
    for (const job of [a, b]) {
      expect(await crash(bundle, 10, { isolated: 'suspect', started: true })).toEqual([job]);
      expect(await recover(bundle)).toEqual([{ freed: 1, counted: job, status: 'QUEUED' }]);
    }
    // It is clear by now who caused the first crash: the second suspect is charged for its own alone.
    expect(await charged(bundle)).toEqual([[2, 0, 'alone'], [1, 0, 'alone'], suspect]);
    expect(await crash(bundle, 10, { isolated: 'suspect', started: true })).toEqual([c]);
    const [row] = await bundle.rows<{ last_error: { message: string } }>(
      'select last_error from tallyman.jobs where id = $1',
      [a],
    );
    expect(row?.last_error.message).toMatch(/^lease expired, worker dead-/);
  });

  test('ENG-17: an isolated job that had not started is not charged, and keeps its place', async () => {
    const bundle = await engine();
    const [a] = await enqueued(bundle, 2);
    await crash(bundle, 10);
    await recover(bundle);
    for (let i = 0; i < 3; i += 1) {
      expect(await crash(bundle, 10, { isolated: 'suspect' })).toEqual([a]);
      expect(await recover(bundle)).toEqual([{ freed: 1, counted: null, status: null }]);
    }
    expect(await charged(bundle)).toEqual([
      [0, 1, 'suspect'],
      [0, 1, 'suspect'],
    ]);
  });

  test('ENG-17: an isolated job is charged whatever ran beside it, and that goes back as it was', async () => {
    const bundle = await engine();
    const [poison] = await enqueued(bundle, 1);
    await crash(bundle, 10);
    await recover(bundle);
    const beside = await enqueued(bundle, 3);
    expect(await crash(bundle, 10, { isolated: 'suspect', started: true, worker: 'w' })).toEqual([poison]);
    expect(await crash(bundle, 10, { worker: 'w' })).toEqual(beside);
    expect(await recover(bundle)).toEqual([{ freed: 4, counted: poison, status: 'QUEUED' }]);
    expect(await charged(bundle)).toEqual([
      [2, 0, 'alone'],
      [0, 0, ''],
      [0, 0, ''],
      [0, 0, ''],
    ]);
    expect(await crash(bundle, 10)).toEqual(beside);
  });

  test('ENG-17: of several suspects nobody is charged; next time each runs with no other suspect', async () => {
    const bundle = await engine();
    const [a, b] = await enqueued(bundle, 2);
    await crash(bundle, 10);
    await recover(bundle);
    for (const id of [a, b])
      expect(await crash(bundle, 1, { isolated: 'suspect', started: true, worker: 'w' })).toEqual([id]);
    expect(await recover(bundle)).toEqual([{ freed: 2, counted: null, status: null }]);
    expect(await charged(bundle)).toEqual([
      [0, 2, 'alone'],
      [0, 2, 'alone'],
    ]);
    expect(await crash(bundle, 10, { isolated: 'alone', started: true })).toEqual([a]);
    expect(await recover(bundle)).toEqual([{ freed: 1, counted: a, status: 'QUEUED' }]);
    expect(await charged(bundle)).toEqual([
      [3, 0, 'alone'],
      [0, 2, 'alone'],
    ]);
  });

  test('ENG-17: the only job of a worker is charged at once if it is known that it had started', async () => {
    const bundle = await engine();
    const [a] = await enqueued(bundle, 1, { maxAttempts: 1 });
    expect(await crash(bundle, 1)).toEqual([a]);
    expect(await recover(bundle)).toEqual([{ freed: 1, counted: null, status: null }]);
    expect(await crash(bundle, 1, { isolated: 'suspect', started: true })).toEqual([a]);
    expect(await recover(bundle)).toEqual([{ freed: 1, counted: a, status: 'DEAD_LETTER' }]);
    const [b] = await enqueued(bundle, 1, { maxAttempts: 1 });
    expect(await crash(bundle, 1, { started: true })).toEqual([b]);
    expect(await recover(bundle)).toEqual([{ freed: 1, counted: b, status: 'DEAD_LETTER' }]);
  });

  test('ENG-17: in a lane all that was handed out is suspect, and only a head that had started is charged', async () => {
    const bundle = await engine();
    const ids = await enqueued(bundle, 4, { lane: 'l', maxAttempts: 1 });
    const worker = 'first';
    await takeTurn(bundle, worker, { laneJobs: 3 });
    await bundle.rows(`update tallyman.claims set expires_at = now() where worker = $1`, [worker]);
    await recover(bundle);
    const suspect = [0, 1, 'suspect'];
    expect(await charged(bundle)).toEqual([suspect, suspect, suspect, [0, 0, '']]);
    // Its head was confirmed, and the worker died before it let the lane go: the next one never ran.
    const { jobs } = await takeTurn(bundle, 'second', { isolated: 'suspect' });
    expect(jobs.map((job) => job.id)).toEqual(ids.slice(0, 1));
    await markStarted(bundle.tallyman.database, 'second', jobs);
    await bundle.rows('delete from tallyman.jobs where id = $1', [ids[0]]);
    await bundle.rows(`update tallyman.claims set expires_at = now() where worker = 'second'`);
    expect(await recover(bundle)).toEqual([{ freed: 1, counted: null, status: null }]);
    expect(await charged(bundle)).toEqual([suspect, suspect, [0, 0, '']]);
    expect(await crash(bundle, 1, { isolated: 'suspect', started: true })).toEqual(ids.slice(1, 2));
    expect(await recover(bundle)).toEqual([{ freed: 1, counted: ids[1], status: 'DEAD_LETTER' }]);
  });

  test('ENG-5, ENG-17: the one that kills workers is a dead letter after exactly its attempts; its neighbours run', async () => {
    const bundle = await engine();
    const jobs = await enqueued(bundle, 4, { maxAttempts: 3 });
    const poison = jobs[2] ?? '';
    let crashes = 1;
    await crash(bundle, 10);
    await recover(bundle);
    for (let i = 0; i < 20; i += 1) {
      await bundle.rows('select tallyman.promote(100)');
      const [suspect] = await crash(bundle, 1, { isolated: 'suspect', started: true });
      const id = suspect ?? (await crash(bundle, 1, { isolated: 'alone', started: true }))[0];
      if (id === undefined) break;
      if (id === poison) crashes += 1;
      else await bundle.rows('delete from tallyman.jobs where id = $1', [id]);
      await recover(bundle);
    }
    expect(crashes).toBe(3);
    expect(await charged(bundle)).toEqual([]);
    const { items } = await bundle.tallyman.deadLetters.list();
    expect(items.map((letter) => letter.id)).toEqual([poison]);
    expect(items[0]).toMatchObject({ attempts: 3, lastError: { code: 'LEASE_EXPIRED' } });
  });

  test('ENG-17: a worker starts what a crashed one held one by one, and goes on with the rest beside it', async () => {
    const bundle = await engine();
    await enqueued(bundle, 30);
    await crash(bundle, 10);
    let running = 0;
    let most = 0;
    let suspects = 0;
    const kind = defineKind({
      name: 'noop',
      handler: async (_, ctx) => {
        const isSuspect = Number(ctx.id) <= 10;
        if (isSuspect) {
          running += 1;
          suspects += 1;
          most = Math.max(most, running);
        }
        await new Promise((resolve) => setTimeout(resolve, 2));
        if (isSuspect) running -= 1;
      },
    });
    await bundle.work({ kinds: [kind] });
    await until('all are done', async () => (await charged(bundle)).length === 0);
    expect(suspects).toBe(10);
    expect(most).toBe(1);
  });

  test('ENG-16: suspects that take long do not wait for each other', async () => {
    const bundle = await engine();
    await enqueued(bundle, 5);
    await crash(bundle, 10);
    const started = new Set<string>();
    const { promise, resolve } = Promise.withResolvers<void>();
    const kind = defineKind({
      name: 'noop',
      handler: async (_, ctx) => {
        started.add(ctx.id);
        await promise;
      },
    });
    await bundle.work({ kinds: [kind] });
    await until('all have started', () => started.size === 5);
    resolve();
    await until('all are done', async () => (await charged(bundle)).length === 0);
  });

  test('ENG-16: items with smaller positions that crash later are found behind those that crashed before', async () => {
    const bundle = await engine();
    const [a, b, c, d] = await enqueued(bundle, 4);
    expect((await takeTurn(bundle, 'first', { total: 2 })).jobs.map((job) => job.id)).toEqual([a, b]);
    expect(await crash(bundle, 2)).toEqual([c, d]);
    await recover(bundle);
    for (const id of [c, d]) {
      const [job] = (await takeTurn(bundle, 'second', { isolated: 'suspect' })).jobs;
      expect(job?.id).toBe(id);
      await bundle.rows('delete from tallyman.jobs where id = $1', [id]);
    }
    await bundle.rows(
      `update tallyman.claims set expires_at = now() - interval '1 s' where worker = 'first'`,
    );
    await recover(bundle);
    const third = await takeTurn(bundle, 'third', { isolated: 'suspect', late: false });
    expect(third.jobs.map((job) => job.id)).toEqual([a]);
  });

  test('the second rule: no heartbeat for too long is stuck, however long the lease', async () => {
    const bundle = await engine();
    await enqueued(bundle, 1);
    await takeTurn(bundle, 'stuck', { leaseMs: 3_600_000, staleMs: 1 });
    await bundle.rows('select pg_sleep(0.005)');
    expect(await recover(bundle)).toMatchObject([{ freed: 1 }]);
  });
});
