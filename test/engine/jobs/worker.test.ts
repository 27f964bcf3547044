import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { drained, engine, until } from '../../support/engine.ts';

describe('worker', () => {
  test('ENG-12: stop lets running handlers finish and hands the rest back without costing an attempt', async () => {
    const bundle = await engine();
    const finished: string[] = [];
    let started = 0;
    const kind = defineKind({
      name: 'slow',
      handler: async (_, ctx) => {
        started += 1;
        await sleep(300);
        finished.push(ctx.id);
      },
    });
    const worker = await bundle.work({
      kinds: [kind],
      concurrency: 3,
      maxPrefetch: 100,
      stopTimeoutMs: 60_000,
    });
    // Fast ones first, so that it claims ahead.
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 30 }, () => ({ payload: {} })),
    );
    // What is claimed counts as running; a handler starts when the worker has the answer.
    await until('some are running', () => started >= 3);
    await worker.stop();
    const done = finished.length;
    expect(done).toBeGreaterThanOrEqual(3);
    expect(await bundle.rows('select 1 from tallyman.claims')).toEqual([]);
    const counts = await bundle.tallyman.jobs.counts();
    expect(counts).toMatchObject({ SUCCEEDED: done, RUNNING: 0, QUEUED: 30 - done });
    const [{ n } = { n: -1 }] = await bundle.rows<{ n: number }>(
      'select max(attempts)::int as n from tallyman.jobs',
    );
    expect(n).toBe(0);
    // And they are free at once.
    await bundle.work({ kinds: [kind], concurrency: 30 });
    await drained(bundle);
    expect(new Set(finished).size).toBe(30);
  });

  test('ENG-12: what does not finish in time is aborted and released, lanes in order', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = defineKind<{ n: number }>({
      name: 'stubborn',
      handler: async ({ n }, ctx) => {
        log.push(`start ${n}`);
        await new Promise((resolve, reject) => {
          ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason));
          if (log.filter((line) => line === `start ${n}`).length > 1 || n === 0) resolve(undefined);
        });
        log.push(`end ${n}`);
      },
    });
    for (let n = 0; n < 3; n += 1) await bundle.tallyman.enqueue(kind, { n }, { lane: 'a' });
    const worker = await bundle.work({ kinds: [kind], stopTimeoutMs: 200 });
    await until('the second hangs', () => log.includes('start 1'));
    await worker.stop();
    expect(await bundle.rows('select 1 from tallyman.claims')).toEqual([]);
    const attempts = await bundle.rows<{ attempts: number }>('select attempts from tallyman.jobs');
    expect(attempts.map((row) => row.attempts)).toEqual([0, 0]);
    await bundle.work({ kinds: [kind] });
    await until('the next worker goes on', () => log.filter((line) => line === 'start 1').length === 2);
    expect(log.slice(0, 4)).toEqual(['start 0', 'end 0', 'start 1', 'start 1']);
  });

  test('ENG-13: delayed jobs run when they are due, by the database’s clock, in due order', async () => {
    const bundle = await engine();
    const log: string[] = [];
    const kind = defineKind<{ name: string }>({ name: 'k', handler: ({ name }) => log.push(name) });
    // However long the calls take, the second is due later.
    const began = Date.now();
    await bundle.tallyman.enqueue(kind, { name: 'second' }, { delayMs: 600 });
    await bundle.tallyman.enqueue(kind, { name: 'first' }, { scheduledAt: new Date(began + 200) });
    await bundle.tallyman.enqueue(kind, { name: 'never' }, { delayMs: 3_600_000 });
    await bundle.tallyman.enqueue(kind, { name: 'at once' }, { scheduledAt: new Date(Date.now() - 5000) });
    await bundle.work({ kinds: [kind] });
    await until('both ran', () => log.length === 3);
    expect(log).toEqual(['at once', 'first', 'second']);
    expect(await bundle.tallyman.jobs.counts()).toMatchObject({ QUEUED: 1 });
  });

  test('ENG-13: a paused queue hands nothing out; resume goes on', async () => {
    const bundle = await engine();
    const ran: number[] = [];
    const kind = defineKind<{ n: number }>({ name: 'k', queue: 'q', handler: ({ n }) => ran.push(n) });
    await bundle.tallyman.enqueue(kind, { n: 1 });
    await bundle.tallyman.queues.pause('q');
    await bundle.work({ kinds: [kind] });
    await bundle.tallyman.enqueue(kind, { n: 2 }, { lane: 'a' });
    await sleep(400);
    expect(ran).toEqual([]);
    expect(await bundle.tallyman.queues.list()).toMatchObject([{ name: 'q', paused: true, ready: 2 }]);
    await bundle.tallyman.queues.resume('q');
    await until('both ran', () => ran.length === 2);
    expect(await bundle.tallyman.queues.pause('nowhere')).toBe(false);
    expect(await bundle.tallyman.queues.pause('q')).toBe(true);
  });

  test('ENG-13: a queue’s fleet-wide limit holds over several workers; a worker’s own limit over its queue', async () => {
    const bundle = await engine();
    let running = 0;
    let most = 0;
    let done = 0;
    const kind = defineKind({
      name: 'k',
      queue: 'narrow',
      handler: async () => {
        running += 1;
        most = Math.max(most, running);
        await sleep(5);
        running -= 1;
        done += 1;
      },
    });
    await bundle.tallyman.queues.configure('narrow', { maxRunning: 3 });
    // Who waits for a poll would not be done before the test gives up.
    const rarely = { concurrency: 10, pollIntervalMs: 600_000 };
    for (let i = 0; i < 3; i += 1) await bundle.work({ kinds: [kind], ...rarely });
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 60 }, () => ({ payload: {} })),
    );
    await until('all are done', () => done === 60);
    expect(most).toBeLessThanOrEqual(3);
    await bundle.tallyman.queues.configure('narrow', { maxRunning: null });

    const own = { ...kind, name: 'own', queue: 'own' };
    [most, done] = [0, 0];
    await bundle.work({ kinds: [own], ...rarely, queues: { own: 2 } });
    await bundle.tallyman.enqueueMany(
      own,
      Array.from({ length: 30 }, () => ({ payload: {} })),
    );
    await until('all are done', () => done === 30);
    expect(most).toBeLessThanOrEqual(2);
  });

  test.each(['the queue', 'the worker'])(
    'ENG-13: one slow job takes one place of what %s allows, no more',
    async (whose) => {
      const bundle = await engine();
      const { promise: end, resolve: stop } = Promise.withResolvers<void>();
      let quick = 0;
      const kind = defineKind<{ isSlow: boolean }>({
        name: 'k',
        queue: 'narrow',
        handler: async ({ isSlow }) => {
          if (isSlow) await end;
          else quick += 1;
        },
      });
      await bundle.tallyman.enqueueMany(
        kind,
        Array.from({ length: 30 }, (_, i) => ({
          payload: { isSlow: i === 0 },
          ...(i > 20 && { lane: `lane-${i}` }),
        })),
      );
      if (whose === 'the queue') await bundle.tallyman.queues.configure('narrow', { maxRunning: 3 });
      const queues = whose === 'the worker' ? { narrow: 3 } : ['narrow'];
      await bundle.work({ kinds: [kind], queues, concurrency: 10, pollIntervalMs: 600_000 });
      await until('all others are done', () => quick === 29);
      stop();
    },
  );

  test('ENG-13: a fleet-wide rate limit', async () => {
    const bundle = await engine();
    const starts: number[] = [];
    const kind = defineKind({ name: 'k', queue: 'slow', handler: () => starts.push(Date.now()) });
    await bundle.tallyman.queues.configure('slow', { ratePerSecond: 20, rateBurst: 5 });
    for (let i = 0; i < 2; i += 1) await bundle.work({ kinds: [kind], pollIntervalMs: 50 });
    const began = Date.now();
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 25 }, () => ({ payload: {} })),
    );
    await until('all ran', () => starts.length === 25);
    // 5 at once, 20 more at 20 a second: the last cannot start earlier, however late the first did.
    expect((starts.at(-1) ?? 0) - began).toBeGreaterThan(900);
  });

  test('ENG-14: retention zero leaves no row of a success, and keeps what failed', async () => {
    const bundle = await engine({ retention: { keepMs: 0 } });
    const kind = defineKind<{ ok: boolean }>({
      name: 'k',
      retry: { maxAttempts: 1 },
      handler: ({ ok }) => {
        if (!ok) throw new Error('no');
      },
    });
    await bundle.work({ kinds: [kind] });
    for (const ok of [true, false, true]) await bundle.tallyman.enqueue(kind, { ok });
    await drained(bundle);
    expect(await bundle.tallyman.jobs.counts()).toMatchObject({ SUCCEEDED: 0, DEAD_LETTER: 1 });
  });

  test('ENG-14: finished jobs leave the hot table for a partition of today', async () => {
    const bundle = await engine();
    const kind = defineKind({ name: 'k', handler: () => {} });
    await bundle.work({ kinds: [kind] });
    await bundle.tallyman.enqueue(kind, {}, { lane: 'l', correlationId: 'c' });
    await drained(bundle);
    const rows = await bundle.rows<{ part: string }>(
      'select tableoid::regclass::text as part, * from tallyman.history',
    );
    expect(rows).toMatchObject([{ status: 'SUCCEEDED', lane: 'l', correlation_id: 'c', attempts: 1 }]);
    expect(rows[0]?.part).toMatch(/history_\d{8}$/);
  });

  test('ENG-1: a job goes QUEUED, RUNNING, SUCCEEDED', async () => {
    const bundle = await engine();
    const seen: (string | undefined)[] = [];
    const kind = defineKind({
      name: 'k',
      handler: async (_, ctx) => {
        seen.push((await bundle.tallyman.jobs.get(ctx.id))?.status);
      },
    });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    seen.push((await bundle.tallyman.jobs.get(id))?.status);
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    seen.push((await bundle.tallyman.jobs.get(id))?.status);
    expect(seen).toEqual(['QUEUED', 'RUNNING', 'SUCCEEDED']);
  });

  test('slow jobs are not hoarded: another worker finds them', async () => {
    const bundle = await engine();
    const by = new Map<string, number>();
    const bothWork = Promise.withResolvers<void>();
    const make = (name: string) =>
      defineKind({
        name: 'k',
        handler: async () => {
          by.set(name, (by.get(name) ?? 0) + 1);
          await bothWork.promise;
          await sleep(100);
        },
      });
    await bundle.tallyman.enqueueMany(
      make('x'),
      Array.from({ length: 60 }, () => ({ payload: {} })),
    );
    await bundle.work({ kinds: [make('a')], concurrency: 4 });
    await until('one has some', () => (by.get('a') ?? 0) >= 4);
    await bundle.work({ kinds: [make('b')], concurrency: 4 });
    await until('the other found some', () => (by.get('b') ?? 0) >= 4);
    bothWork.resolve();
    await drained(bundle);
    expect(by.get('b')).toBeGreaterThan(15);
  });

  test('bad options of a worker are refused', async () => {
    const bundle = await engine();
    const kind = defineKind({ name: 'k', handler: () => {} });
    expect(() => bundle.tallyman.worker({ kinds: [] })).toThrow(/at least one kind/);
    expect(() => bundle.tallyman.worker({ kinds: [kind, kind] })).toThrow(/given twice/);
    expect(() => bundle.tallyman.worker({ kinds: [kind], concurrency: 0 })).toThrow(/concurrency/);
    expect(() => bundle.tallyman.worker({ kinds: [kind], leaseMs: 1000, renewMs: 1000 })).toThrow(
      /below leaseMs/,
    );
  });
});
