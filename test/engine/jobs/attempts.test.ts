import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { PermanentError, RetryLater } from '../../../src/engine/errors.ts';
import { defaultBackoff, defineKind } from '../../../src/engine/jobs/kind.ts';
import { withJitter } from '../../../src/engine/resilience/backoff.ts';
import { engine, until } from '../../support/engine.ts';

const statusOf = async (bundle: Awaited<ReturnType<typeof engine>>, id: string) =>
  (await bundle.tallyman.jobs.get(id))?.status;

describe('attempts', () => {
  test('ENG-5: waits 2, 4, 8, 16 … 1024 seconds, plus a tenth at the most', () => {
    expect([1, 2, 3, 4, 9, 10, 11, 40].map(defaultBackoff)).toEqual(
      [2, 4, 8, 16, 512, 1024, 1024, 1024].map((s) => s * 1000),
    );
    for (let i = 0; i < 200; i += 1) {
      const ms = withJitter(1000);
      expect(ms).toBeGreaterThanOrEqual(1000);
      expect(ms).toBeLessThanOrEqual(1100);
    }
  });

  test('ENG-5: five attempts by default, then DEAD_LETTER', async () => {
    const bundle = await engine();
    const attempts: number[] = [];
    const flaky = defineKind({
      name: 'flaky',
      retry: { backoff: () => 1 },
      handler: (_, ctx) => {
        attempts.push(ctx.attempt);
        throw new Error('the carrier is down');
      },
    });
    await bundle.work({ kinds: [flaky] });
    const { id } = await bundle.tallyman.enqueue(flaky, {});
    await until('it is buried', async () => (await statusOf(bundle, id)) === 'DEAD_LETTER');
    expect(attempts).toEqual([1, 2, 3, 4, 5]);
    const letter = await bundle.tallyman.deadLetters.get(id);
    expect(letter).toMatchObject({
      kind: 'flaky',
      queue: 'default',
      attempts: 5,
      maxAttempts: 5,
      redrives: 0,
    });
    expect(letter?.firstFailedAt.getTime()).toBeLessThan(letter?.lastFailedAt.getTime() ?? 0);
  });

  test('ENG-5: the wait is in the database, and the database counts it', async () => {
    const bundle = await engine();
    const kind = defineKind({
      name: 'once-an-hour',
      retry: { backoff: () => 3_600_000 },
      handler: () => Promise.reject(new Error('no')),
    });
    await bundle.work({ kinds: [kind] });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it failed once', async () => (await bundle.tallyman.jobs.get(id))?.attempts === 1);
    const [row] = await bundle.rows<{ wait: string; pos: null }>(
      'select extract(epoch from scheduled_at - now()) as wait, pos from tallyman.jobs where id = $1',
      [id],
    );
    expect(Number(row?.wait)).toBeGreaterThan(3590);
    expect(Number(row?.wait)).toBeLessThan(3960);
    expect(row?.pos).toBeNull();
    expect(await statusOf(bundle, id)).toBe('QUEUED');
  });

  test('ENG-6: PermanentError is FAILED at once; last_error tells code, message, stack, attempt, worker, time', async () => {
    const bundle = await engine();
    const kind = defineKind({
      name: 'hopeless',
      handler: () => {
        throw new PermanentError('SNAPSHOT_NOT_READY', 'the snapshot is not sealed');
      },
    });
    const worker = await bundle.work({ kinds: [kind] });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it failed', async () => (await statusOf(bundle, id)) === 'FAILED');
    const job = await bundle.tallyman.jobs.get(id);
    expect(job).toMatchObject({ attempts: 1 });
    expect(job?.lastError).toMatchObject({
      code: 'SNAPSHOT_NOT_READY',
      message: 'the snapshot is not sealed',
      attempt: 1,
      worker: worker.id,
    });
    expect(job?.lastError?.stack).toContain('attempts.test');
    expect(Number.isNaN(Date.parse(job?.lastError?.at ?? ''))).toBe(false);
    expect((await bundle.tallyman.deadLetters.list()).items).toHaveLength(0);
  });

  test('ENG-6: RetryLater reschedules as asked, and counts as an attempt', async () => {
    const bundle = await engine();
    const kind = defineKind({
      name: 'later',
      handler: () => {
        throw new RetryLater(7_200_000);
      },
    });
    await bundle.work({ kinds: [kind] });
    const { id } = await bundle.tallyman.enqueue(kind, {});
    await until('it failed once', async () => (await bundle.tallyman.jobs.get(id))?.attempts === 1);
    const job = await bundle.tallyman.jobs.get(id);
    const waitMs = (job?.scheduledAt.getTime() ?? 0) - Date.now();
    expect(waitMs).toBeGreaterThan(7_100_000);
    expect(waitMs).toBeLessThan(7_210_000);
  });

  test('ENG-7: throws, rejections, timeouts and odd values never stop the loop', async () => {
    const bundle = await engine();
    const done: number[] = [];
    const kind = defineKind<{ how: string; i: number }>({
      name: 'misbehaving',
      retry: { maxAttempts: 1 },
      timeoutMs: 300,
      handler: ({ how, i }) => {
        if (how === 'throw') throw new Error('x');
        if (how === 'throw-string') throw 'just a string';
        if (how === 'throw-null') throw null;
        if (how === 'reject') return Promise.reject(new Error('x\0y'));
        if (how === 'hang') return new Promise(() => {});
        return done.push(i);
      },
    });
    await bundle.work({ kinds: [kind], concurrency: 2 });
    const hows = ['throw', 'throw-string', 'throw-null', 'reject', 'hang', 'hang', 'hang', 'fine'];
    for (const [i, how] of hows.entries()) await bundle.tallyman.enqueue(kind, { how, i });
    await until('the last one is done', () => done.includes(7));
    await until(
      'the others are buried',
      async () => (await bundle.tallyman.deadLetters.list()).items.length === 7,
    );
    const codes = (await bundle.tallyman.deadLetters.list()).items.map((letter) => letter.lastError?.code);
    expect(codes.filter((code) => code === 'TIMEOUT')).toHaveLength(3);
  });

  test('ENG-7: an unknown kind is left for a worker that knows it, and reported', async () => {
    const bundle = await engine();
    const known = defineKind({ name: 'known', handler: () => {} });
    const ran: string[] = [];
    const foreign = defineKind({ name: 'foreign', handler: (_, ctx) => ran.push(ctx.id) });
    const reported: string[] = [];
    const ignorant = await bundle.work({ kinds: [known] });
    ignorant.events.on('unknownKind', ({ kind }) => reported.push(kind));
    const free = await bundle.tallyman.enqueue(foreign, {});
    const inLane = await bundle.tallyman.enqueue(foreign, {}, { lane: 'l' });
    const after = await bundle.tallyman.enqueue(known, {});
    await until('it was reported', () => reported.includes('foreign'));
    await until('the known one ran', async () => (await statusOf(bundle, after.id)) === 'SUCCEEDED');
    await until('it is left for another', async () => (await statusOf(bundle, free.id)) === 'QUEUED');
    expect(await bundle.tallyman.jobs.get(free.id)).toMatchObject({ status: 'QUEUED', attempts: 0 });
    await bundle.work({ kinds: [foreign] });
    await until('the other worker ran both', () => ran.length === 2);
    expect(ran.sort()).toEqual([free.id, inLane.id].sort());
  });

  test('ENG-11: a payload that its schema no longer takes is FAILED with VALIDATION_ERROR and the path', async () => {
    const bundle = await engine();
    const loose = defineKind<{ a: { b: unknown } }>({ name: 'shaped', handler: () => {} });
    const strict = defineKind({
      name: 'shaped',
      schema: z.object({ a: z.object({ b: z.number() }) }),
      handler: () => {},
    });
    const { id } = await bundle.tallyman.enqueue(loose, { a: { b: 'text' } });
    await bundle.work({ kinds: [strict] });
    await until('it failed', async () => (await statusOf(bundle, id)) === 'FAILED');
    const job = await bundle.tallyman.jobs.get(id);
    expect(job?.lastError?.code).toBe('VALIDATION_ERROR');
    expect(job?.lastError?.message).toContain('a.b');
  });

  test('ENG-15: a job enqueued by a handler inherits the correlation id', async () => {
    const bundle = await engine();
    const child = defineKind({ name: 'child', handler: () => {} });
    const ids: string[] = [];
    const parent = defineKind({
      name: 'parent',
      handler: async (_, ctx) => {
        ids.push((await ctx.enqueue(child, {})).id);
        ids.push((await bundle.tallyman.enqueue(child, {})).id);
        await ctx.commit(async (tx) => ids.push((await ctx.enqueue(child, {}, { tx })).id));
      },
    });
    await bundle.work({ kinds: [parent, child] });
    const named = await bundle.tallyman.enqueue(parent, {}, { correlationId: 'order-7', tenantId: 'acme' });
    await until(
      'children ran',
      async () => ids.length === 3 && (await statusOf(bundle, ids[2] ?? '')) === 'SUCCEEDED',
    );
    for (const id of ids) expect((await bundle.tallyman.jobs.get(id))?.correlationId).toBe('order-7');
    expect((await bundle.tallyman.jobs.get(ids[0] ?? ''))?.tenantId).toBe('acme');
    const plain = await bundle.tallyman.enqueue(child, {});
    expect((await bundle.tallyman.jobs.get(plain.id))?.correlationId).toBe(plain.id);
    expect((await bundle.tallyman.jobs.list({ correlationId: 'order-7' })).items).toHaveLength(4);
    expect(named.existing).toBe(false);
  });
});

describe('whose work it is', () => {
  const child = defineKind<{ of: string }>({ name: 'child', handler: () => {} });

  test('ENG-15: each inherits from its own job, at once, in the middle, and from what is left behind', async () => {
    const bundle = await engine();
    const { tallyman } = bundle;
    const leftBehind: Promise<unknown>[] = [];
    const handled = (name: string, handler: (of: string) => unknown, lane?: { key: () => string }) =>
      defineKind({ name, ...(lane && { lane }), handler: (_, ctx) => handler(ctx.id) as Promise<void> });
    const enqueue = (of: string) => tallyman.enqueue(child, { of });
    const inTheMiddle = async (of: string) => {
      await enqueue(of);
      leftBehind.push(sleep(30).then(() => enqueue(of)));
      await sleep(1);
      await enqueue(of);
    };
    const kinds = [
      handled('at-once', (of) => void leftBehind.push(enqueue(of))),
      handled('in-the-middle', inTheMiddle),
      handled('in-a-lane', inTheMiddle, { key: () => 'one' }),
    ];
    for (const kind of kinds)
      await tallyman.enqueueMany(
        kind,
        Array.from({ length: 10 }, () => ({ payload: {} })),
      );
    await bundle.work({ kinds: [...kinds, child], concurrency: 4 });
    const children = () =>
      bundle.rows<{ of: string; correlation: string }>(
        `select payload ->> 'of' as of, correlation_id as correlation from tallyman.history where kind = 'child'`,
      );
    await until('all children ran', async () => (await children()).length === 70);
    for (const { of, correlation } of await children()) expect(correlation).toBe(of);
    await Promise.all(leftBehind);
  });

  test('ENG-15: what an observer enqueues is of no job', async () => {
    const bundle = await engine();
    const { tallyman } = bundle;
    const parent = defineKind({ name: 'parent', handler: () => sleep(1) });
    const committing = defineKind({ name: 'committing', handler: (_, ctx) => ctx.commit(async () => {}) });
    const failing = defineKind({
      name: 'failing',
      retry: { maxAttempts: 1 },
      handler: () => Promise.reject(1),
    });
    await tallyman.enqueueMany(parent, [{ payload: {} }, { payload: {} }, { payload: {} }]);
    await tallyman.enqueue(failing, {});
    await tallyman.enqueue(committing, {});
    const worker = tallyman.worker({ kinds: [parent, failing, committing, child] });
    const enqueued: Promise<{ id: string }>[] = [];
    const enqueue = () => void enqueued.push(tallyman.enqueue(child, { of: 'nobody' }));
    worker.events.on('started', ({ kind }) => kind === 'child' || enqueue());
    worker.events.on('succeeded', ({ kind }) => kind === 'child' || enqueue());
    worker.events.on('dead', enqueue);
    await worker.start();
    await until('ten were enqueued', () => enqueued.length === 10);
    for (const { id } of await Promise.all(enqueued))
      expect((await tallyman.jobs.get(id))?.correlationId).toBe(id);
  });
});
