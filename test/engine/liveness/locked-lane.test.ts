import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../../src/engine/index.ts';
import { stage } from '../../support/liveness.ts';
import { until } from '../../support/until.ts';

test('LANE-8: a lane that a writer holds locked holds up no other enqueue of the process', async () => {
  const scene = await stage();
  const { tallyman } = scene;
  const ran: { lane: string | undefined; n: number }[] = [];
  const kind = defineKind<{ n: number }>({
    name: 'k',
    handler: ({ n }, ctx) => {
      ran.push({ lane: ctx.lane, n });
    },
  });
  // Each lane exists: its row is locked, not made.
  for (const lane of ['locked', 'other-0', 'other-1']) await tallyman.enqueue(kind, { n: -2 }, { lane });

  const writer = new pg.Client(scene.url);
  await writer.connect();
  onTestFinished(() => writer.end());
  await writer.query('begin');
  await tallyman.enqueue(kind, { n: -1 }, { lane: 'locked', tx: writer });

  const resolved = { free: 0, other: 0, locked: 0 };
  const burst = (from: number): Promise<unknown> => {
    const all: Promise<unknown>[] = [];
    for (let n = from; n < from + 10; n += 1) {
      const note = (which: keyof typeof resolved) => () => {
        resolved[which] += 1;
      };
      all.push(tallyman.enqueue(kind, { n }, { lane: 'locked' }).then(note('locked')));
      all.push(tallyman.enqueue(kind, { n }).then(note('free')));
      all.push(tallyman.enqueue(kind, { n }, { lane: `other-${n % 2}` }).then(note('other')));
    }
    return Promise.all(all);
  };
  const first = burst(0);
  const others = (n: number) => () => resolved.free === n && resolved.other === n;
  await until('the others of the first burst resolve', others(10), 30_000).catch(() => {});
  expect(resolved, 'while the lane is locked').toEqual({ free: 10, other: 10, locked: 0 });
  // Also those that come while the first burst still waits for the lane.
  const second = burst(10);
  await until('the others of the second burst resolve', others(20), 30_000).catch(() => {});
  expect(resolved, 'while the lane is locked').toEqual({ free: 20, other: 20, locked: 0 });

  await writer.query('commit');
  await Promise.all([first, second]);
  expect(resolved.locked).toBe(20);

  const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 100, stopTimeoutMs: 2000 });
  await worker.start();
  await until('all have run', () => ran.length === 64);
  const order = (lane: string) => ran.filter((run) => run.lane === lane).map((run) => run.n);
  expect(order('locked')).toEqual([-2, -1, ...Array.from({ length: 20 }, (_, n) => n)]);
  expect(order('other-0')).toEqual([-2, ...Array.from({ length: 10 }, (_, n) => 2 * n)]);
  expect(order('other-1')).toEqual([-2, ...Array.from({ length: 10 }, (_, n) => 2 * n + 1)]);
});

test('LANE-8: neither does a lane that an open transaction has just made, nor a key that it has taken', async () => {
  const scene = await stage();
  const { tallyman } = scene;
  const kind = defineKind<{ n: number }>({ name: 'k', handler: () => {} });
  const writer = new pg.Client(scene.url);
  await writer.connect();
  onTestFinished(() => writer.end());
  await writer.query('begin');
  await tallyman.enqueue(kind, { n: 0 }, { lane: 'new', tx: writer });
  const first = await tallyman.enqueue(kind, { n: 1 }, { dedupeKey: 'taken', tx: writer });

  let waiting = 0;
  const waits = <T>(answer: Promise<T>): Promise<T> => {
    waiting += 1;
    return answer.finally(() => {
      waiting -= 1;
    });
  };
  const inLane = waits(tallyman.enqueue(kind, { n: 2 }, { lane: 'new' }));
  const keyed = waits(tallyman.enqueue(kind, { n: 3 }, { dedupeKey: 'taken' }));
  const many = waits(tallyman.enqueueMany(kind, [{ payload: { n: 4 }, lane: 'new' }]));
  await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      tallyman.enqueue(kind, { n: n + 10 }, { lane: `other-${n % 3}`, dedupeKey: `key-${n}` }),
    ),
  );
  // Longer than one wait for a lock: it goes on waiting, and nothing is unknown.
  await new Promise((resolve) => setTimeout(resolve, 2500));
  expect(waiting).toBe(3);
  await writer.query('commit');
  expect(await keyed).toEqual({ id: first.id, existing: true });
  expect((await inLane).existing).toBe(false);
  expect(await many).toHaveLength(1);
  const worker = tallyman.worker({ kinds: [kind], pollIntervalMs: 100, stopTimeoutMs: 2000 });
  onTestFinished(() => worker.stop());
  await worker.start();
  await until('all have run', async () => (await scene.count('select count(*) from tallyman.jobs')) === 0);
});
