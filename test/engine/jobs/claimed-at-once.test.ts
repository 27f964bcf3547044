import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import type { Worker } from '../../../src/engine/jobs/worker.ts';
import { Tallyman } from '../../../src/engine/tallyman.ts';
import { type Bundle, drained, engine, until } from '../../support/engine.ts';

/** Claims that a worker made in the commit of an enqueue: those that took no time of their own. */
function countAtOnce(worker: Worker): { jobs: number } {
  const count = { jobs: 0 };
  worker.events.on('claimed', ({ jobs, durationMs }) => {
    if (durationMs === 0) count.jobs += jobs;
  });
  return count;
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
    let wakeups = 0;
    worker.events.on('wakeup', () => {
      wakeups += 1;
    });
    for (let n = 0; n < 5; n += 1) {
      await bundle.tallyman.enqueue(kind, { n });
      await drained(bundle);
      await sleep(20);
    }
    expect(ran).toEqual([0, 1, 2, 3, 4]);
    expect(atOnce.jobs).toBe(5);
    expect(wakeups).toBe(0);
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
    await bundle.tallyman.enqueue(kind, { at }, options);
    await drained(bundle);
    await sleep(1100);
    await bundle.tallyman.enqueue(kind, { at }, options);
    await drained(bundle);
    expect(atOnce.jobs).toBe(1);
    const { queue, ...told } = options;
    const all = {
      ...told,
      queue,
      attempt: 1,
      lane: undefined,
      seq: undefined,
      payload: { at: at.toISOString() },
    };
    expect(seen).toEqual([all, all]);
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
    const feed = async (tallyman: Tallyman) => {
      const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 100 });
      await worker.start();
      const atOnce = countAtOnce(worker);
      const until = Date.now() + 4000;
      let ids: string[] = [];
      while (Date.now() < until) {
        const many = Math.random() < 0.2 ? 5 : 1;
        const added = await Promise.all(Array.from({ length: many }, () => tallyman.enqueue(kind, {})));
        ids = ids.concat(added.map(({ id }) => id));
        if (Math.random() < 0.5) await sleep(Math.random() * 4);
      }
      return { worker, atOnce, ids };
    };
    const fed = await Promise.all([feed(bundle.tallyman), feed(other), feed(other)]);
    await drained(bundle);
    await Promise.all(fed.map(({ worker }) => worker.stop()));
    await other.close();
    const ids = fed.flatMap(({ ids }) => ids);
    expect(fed.reduce((sum, { atOnce }) => sum + atOnce.jobs, 0)).toBeGreaterThan(50);
    expect([...runs.values()].filter((times) => times > 1)).toEqual([]);
    expect(runs.size).toBe(ids.length);
  });
});
