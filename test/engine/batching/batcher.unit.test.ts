import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { Batcher } from '../../../src/engine/batching/batcher.ts';

type Sent = number | Error | Promise<number>;

/** A batcher whose batches end when the test says so. */
function harness(maxBatch: number, maxInFlight: number) {
  const batches: { items: number[]; end: (answers: Sent[]) => void; break: (error: Error) => void }[] = [];
  const batcher = new Batcher<number, number>({
    send: (items) =>
      new Promise<Sent[]>((end, reject) => {
        batches.push({ items, end, break: reject });
      }),
    maxBatch,
    maxInFlight,
  });
  return { batcher, batches, sent: () => batches.map(({ items }) => items) };
}

test('callers of one turn share the first batch, later ones share the next', async () => {
  const { batcher, batches, sent } = harness(100, 1);
  const first = [batcher.add(1), batcher.add(2)];
  await turn();
  const second = [batcher.add(3), batcher.add(4)];
  await turn();
  expect(sent()).toEqual([[1, 2]]);
  batches[0]?.end([10, 20]);
  expect(await Promise.all(first)).toEqual([10, 20]);
  await turn();
  expect(sent()).toEqual([
    [1, 2],
    [3, 4],
  ]);
  batches[1]?.end([30, 40]);
  expect(await Promise.all(second)).toEqual([30, 40]);
});

test('a batch has at most so many items, and so many are under way', async () => {
  const { batcher, batches, sent } = harness(2, 2);
  const all = [1, 2, 3, 4, 5].map((item) => batcher.add(item));
  await turn();
  expect(sent()).toEqual([
    [1, 2],
    [3, 4],
  ]);
  batches[1]?.end([3, 4]);
  await turn();
  expect(sent().at(-1)).toEqual([5]);
  batches[0]?.end([1, 2]);
  batches[2]?.end([5]);
  expect(await Promise.all(all)).toEqual([1, 2, 3, 4, 5]);
});

test('an Error among the answers is that caller’s alone', async () => {
  const { batcher, batches } = harness(100, 1);
  const all = [batcher.add(1), batcher.add(2)];
  await turn();
  batches[0]?.end([new Error('not you'), 2]);
  expect(await Promise.allSettled(all)).toMatchObject([
    { status: 'rejected', reason: { message: 'not you' } },
    { status: 'fulfilled', value: 2 },
  ]);
});

test('a rejection is every caller’s of that batch, and of no other', async () => {
  const { batcher, batches } = harness(2, 2);
  const all = [1, 2, 3].map((item) => batcher.add(item));
  await turn();
  batches[0]?.break(new Error('gone'));
  batches[1]?.end([3]);
  expect((await Promise.allSettled(all)).map(({ status }) => status)).toEqual([
    ...['rejected', 'rejected', 'fulfilled'],
  ]);
});

test('an answer that is a promise keeps its caller waiting, not the next batch', async () => {
  const { batcher, batches, sent } = harness(100, 1);
  const held = Promise.withResolvers<number>();
  const answered: number[] = [];
  const note = (answer: number) => void answered.push(answer);
  const [slow, fast] = [batcher.add(1), batcher.add(2)];
  const [slowNoted, fastNoted] = [slow.then(note), fast.then(note)];
  await turn();
  batches[0]?.end([held.promise, 20]);
  await fastNoted;
  const next = batcher.add(3);
  await turn();
  expect([sent(), answered]).toEqual([[[1, 2], [3]], [20]]);
  batches[1]?.end([30]);
  expect(await next).toBe(30);
  held.resolve(10);
  await slowNoted;
  expect(answered).toEqual([20, 10]);
});

test('an answer that is a promise and fails is that caller’s alone', async () => {
  const { batcher, batches } = harness(100, 1);
  const all = [batcher.add(1), batcher.add(2)];
  await turn();
  batches[0]?.end([Promise.reject(new Error('later')), 2]);
  expect(await Promise.allSettled(all)).toMatchObject([
    { status: 'rejected', reason: { message: 'later' } },
    { status: 'fulfilled', value: 2 },
  ]);
});

test('a send that throws before it returns a promise rejects its callers and blocks nobody', async () => {
  let calls = 0;
  const batcher = new Batcher<number, number>({
    send: (items) => {
      calls += 1;
      if (calls === 1) throw new Error('at once');
      return Promise.resolve(items);
    },
    maxBatch: 10,
    maxInFlight: 1,
  });
  await expect(batcher.add(1)).rejects.toThrow('at once');
  expect(await batcher.add(2)).toBe(2);
});

test('SEC-5: of one group a batch takes its share, what came first and in order; other groups do not wait behind it', async () => {
  const sent: string[][] = [];
  const batcher = new Batcher<string, string>({
    send: async (items) => {
      sent.push(items);
      return items;
    },
    maxBatch: 5,
    maxInFlight: 1,
    share: { groupOf: (item) => item.slice(0, 1), most: (group) => (group === 'a' ? 2 : 5) },
  });
  const items = ['a1', 'a2', 'a3', 'a4', 'a5', 'b1', 'b2', 'c1', 'c2'];
  expect(await Promise.all(items.map((item) => batcher.add(item)))).toEqual(items);
  expect(sent).toEqual([['a1', 'a2', 'b1', 'b2', 'c1'], ['a3', 'a4', 'c2'], ['a5']]);
});
