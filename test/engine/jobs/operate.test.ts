import { describe, expect, test } from 'vitest';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { drained, engine, until } from '../../support/engine.ts';

const failing = (broken: () => boolean) =>
  defineKind<{ n?: number }>({
    name: 'failing',
    retry: { maxAttempts: 1 },
    handler: () => {
      if (broken()) throw Object.assign(new Error('the printer is jammed'), { code: 'JAM' });
    },
  });

describe('jobs', () => {
  test('ENG-13: cancel a waiting job, and one in a lane; the rest goes on', async () => {
    const bundle = await engine();
    const ran: number[] = [];
    const kind = defineKind<{ n: number }>({ name: 'k', handler: ({ n }) => ran.push(n) });
    const free = await bundle.tallyman.enqueue(kind, { n: 1 });
    const only = await bundle.tallyman.enqueue(kind, { n: 2 }, { lane: 'emptied' });
    const head = await bundle.tallyman.enqueue(kind, { n: 3 }, { lane: 'a' });
    await bundle.tallyman.enqueue(kind, { n: 4 }, { lane: 'a' });
    for (const { id } of [free, only, head]) await bundle.tallyman.jobs.cancel(id, 'no longer wanted');
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(ran).toEqual([4]);
    expect(await bundle.tallyman.jobs.get(free.id)).toMatchObject({
      status: 'CANCELLED',
      lastError: { code: 'CANCELLED', message: 'no longer wanted' },
    });
    await until(
      'the emptied lane rests',
      async () => (await bundle.tallyman.lanes.get('emptied'))?.state === 'resting',
    );
    await bundle.tallyman.enqueue(kind, { n: 5 }, { lane: 'emptied' });
    await until('it works again', () => ran.includes(5));
    await expect(bundle.tallyman.jobs.cancel(free.id)).rejects.toThrow(
      /is CANCELLED and cannot be cancelled/,
    );
    await expect(bundle.tallyman.jobs.cancel('999999')).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await expect(bundle.tallyman.jobs.cancel('12; drop table')).rejects.toThrow(/not an id/);
  });

  test('retry: a cancelled one from the start, a waiting one now', async () => {
    const bundle = await engine();
    const ran: number[] = [];
    const kind = defineKind<{ n: number }>({ name: 'k', handler: ({ n }) => ran.push(n) });
    const cancelled = await bundle.tallyman.enqueue(kind, { n: 1 });
    const later = await bundle.tallyman.enqueue(kind, { n: 2 }, { delayMs: 3_600_000 });
    const inLane = await bundle.tallyman.enqueue(kind, { n: 3 }, { lane: 'a', delayMs: 3_600_000 });
    const waiting = await bundle.tallyman.enqueue(kind, { n: 4 });
    await bundle.tallyman.jobs.cancel(cancelled.id);
    await expect(bundle.tallyman.jobs.retry(waiting.id)).rejects.toThrow(/is QUEUED and cannot be retried/);
    for (const { id } of [cancelled, later, inLane]) await bundle.tallyman.jobs.retry(id);
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(ran.sort()).toEqual([1, 2, 3, 4]);
    expect(await bundle.tallyman.jobs.get(cancelled.id)).toMatchObject({ status: 'SUCCEEDED' });
  });

  test('list: newest first, pages by cursor, filters', async () => {
    const bundle = await engine();
    const kind = defineKind<unknown>({ name: 'k', handler: () => {} });
    const other = defineKind<unknown>({ name: 'other', queue: 'q2', handler: () => {} });
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 7 }, () => ({ payload: {} })),
    );
    await bundle.tallyman.enqueue(other, {}, { tenantId: 'acme', lane: 'l' });
    const ids: string[] = [];
    let cursor: string | null | undefined;
    do {
      const page = await bundle.tallyman.jobs.list({ kind: 'k' }, { limit: 3, ...(cursor && { cursor }) });
      ids.push(...page.items.map((job) => job.id));
      cursor = page.nextCursor;
    } while (cursor);
    expect(ids).toHaveLength(7);
    expect(ids.map(Number)).toEqual([...ids.map(Number)].sort((a, b) => b - a));
    expect((await bundle.tallyman.jobs.list({ tenantId: 'acme' })).items).toMatchObject([
      { kind: 'other', lane: 'l' },
    ]);
    expect((await bundle.tallyman.jobs.list({ queue: 'q2', status: 'QUEUED' })).items).toHaveLength(1);
    expect((await bundle.tallyman.jobs.list({ status: 'SUCCEEDED' })).items).toHaveLength(0);
    await expect(bundle.tallyman.jobs.list({ status: 'SLEEPING' as never })).rejects.toThrow(
      /status must be one of/,
    );
  });
});

describe('dead letters', () => {
  test('redrive resets attempts, keeps the id and counts; dying again keeps the first failure', async () => {
    const bundle = await engine();
    let broken = true;
    const kind = failing(() => broken);
    await bundle.work({ kinds: [kind] });
    const { id } = await bundle.tallyman.enqueue(kind, {}, { dedupeKey: 'd' });
    const buried = () =>
      until('it is buried', async () => (await bundle.tallyman.deadLetters.get(id)) !== undefined);
    await buried();
    const first = await bundle.tallyman.deadLetters.get(id);
    expect(first).toMatchObject({ entityType: 'job', entityId: id, lastError: { code: 'JAM' }, redrives: 0 });
    expect((await bundle.tallyman.enqueue(kind, {}, { dedupeKey: 'd' })).existing).toBe(true);
    await bundle.tallyman.deadLetters.redrive(id);
    await until('it died again', async () => (await bundle.tallyman.deadLetters.get(id))?.redrives === 1);
    expect((await bundle.tallyman.deadLetters.get(id))?.firstFailedAt).toEqual(first?.firstFailedAt);
    broken = false;
    await bundle.tallyman.deadLetters.redrive(id);
    await until('it is done', async () => (await bundle.tallyman.jobs.get(id))?.status === 'SUCCEEDED');
    await expect(bundle.tallyman.deadLetters.redrive(id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  test('search, redrive by filter, discard', async () => {
    const bundle = await engine();
    let broken = true;
    const kind = failing(() => broken);
    const other = { ...kind, name: 'other' };
    await bundle.work({ kinds: [kind, other], concurrency: 20 });
    await bundle.tallyman.enqueueMany(
      kind,
      Array.from({ length: 30 }, (_, n) => ({ payload: { n } })),
    );
    await bundle.tallyman.enqueueMany(other, [{ payload: {}, tenantId: 'acme' }, { payload: {} }]);
    await until('all are buried', async () => (await bundle.tallyman.jobs.counts()).DEAD_LETTER === 32);
    const { deadLetters } = bundle.tallyman;
    expect((await deadLetters.list({ search: 'JAMMED' })).items).toHaveLength(32);
    expect(
      (await deadLetters.list({ errorCode: 'JAM', kind: 'other', tenantId: 'acme' })).items,
    ).toHaveLength(1);
    broken = false;
    const progress: number[] = [];
    expect(await deadLetters.redriveAll({ kind: 'failing' }, { onProgress: (n) => progress.push(n) })).toBe(
      30,
    );
    expect(progress).toEqual([30]);
    await until('they are done', async () => (await bundle.tallyman.jobs.counts()).SUCCEEDED === 30);
    const left = (await deadLetters.list()).items.map((letter) => letter.id);
    expect(await deadLetters.discard([left[0] ?? ''])).toBe(1);
    expect(await deadLetters.discardAll({ kind: 'other' })).toBe(1);
    expect((await deadLetters.list()).items).toEqual([]);
  });

  test('a redrive in a lane goes to its end, or to its head when asked', async () => {
    const bundle = await engine();
    const log: number[] = [];
    let broken = true;
    const kind = defineKind<{ n: number }>({
      name: 'k',
      retry: { maxAttempts: 1 },
      handler: ({ n }) => {
        if (n < 3 && broken) throw new Error('x');
        log.push(n);
      },
    });
    const [one, two] = await bundle.tallyman.enqueueMany(kind, [
      { payload: { n: 1 }, lane: 'a' },
      { payload: { n: 2 }, lane: 'a' },
    ]);
    const worker = await bundle.work({ kinds: [kind] });
    await until('both are buried', async () => (await bundle.tallyman.jobs.counts()).DEAD_LETTER === 2);
    await worker.stop();
    broken = false;
    for (const n of [3, 4]) await bundle.tallyman.enqueue(kind, { n }, { lane: 'a' });
    await bundle.tallyman.deadLetters.redrive(one?.id ?? '');
    await bundle.tallyman.deadLetters.redrive(two?.id ?? '', { toHead: true });
    await bundle.work({ kinds: [kind] });
    await drained(bundle);
    expect(log).toEqual([2, 3, 4, 1]);
  });

  test('a redrive to the head of a lane that is being worked on is not forgotten', async () => {
    const bundle = await engine();
    const log: number[] = [];
    let broken = true;
    let release: (() => void) | undefined;
    const kind = defineKind<{ n: number }>({
      name: 'k',
      retry: { maxAttempts: 1 },
      handler: async ({ n }) => {
        if (n === 1 && broken) throw new Error('x');
        if (n === 2)
          await new Promise<void>((resolve) => {
            release = resolve;
          });
        log.push(n);
      },
    });
    await bundle.work({ kinds: [kind] });
    const dead = await bundle.tallyman.enqueue(kind, { n: 1 }, { lane: 'a' });
    await until('it is buried', async () => (await bundle.tallyman.jobs.counts()).DEAD_LETTER === 1);
    broken = false;
    await bundle.tallyman.enqueue(kind, { n: 2 }, { lane: 'a' });
    await until('the next one runs', () => release !== undefined);
    await bundle.tallyman.deadLetters.redrive(dead.id, { toHead: true });
    release?.();
    await drained(bundle);
    expect(log).toEqual([2, 1]);
  });
});
