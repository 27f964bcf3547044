import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { BusyLanes, lockOf } from '../../../src/engine/jobs/busy-lanes.ts';
import type { Enqueued } from '../../../src/engine/jobs/enqueue.ts';
import type { NewJob } from '../../../src/engine/jobs/new-job.ts';

const job = (lane: string | undefined, p: string, key?: string): NewJob => ({
  ...{ queue: 'q', priority: 2, plain: false },
  row: { ...{ s: 1, k: 'k', p, m: 5, t: 'default' }, ...(lane && { l: lane }), ...(key && { x: key }) },
});

/** Writes that end when the test says so. */
function harness() {
  const writes: { payloads: string[]; end: () => void; fail: (error: unknown) => void }[] = [];
  const lanes = new BusyLanes<NewJob, Enqueued>((jobs) => {
    const payloads = jobs.map(({ row }) => row.p);
    return new Promise<Enqueued[]>((resolve, reject) => {
      const end = () => resolve(payloads.map((p) => ({ id: `id-${p}`, existing: false })));
      writes.push({ payloads, end, fail: reject });
    });
  }, lockOf);
  return { lanes, writes, written: () => writes.map(({ payloads }) => payloads.join()) };
}

const stillLocked = Object.assign(new Error('lock timeout'), { code: '55P03' });

test('what comes into a lane while others wait for it goes behind them, in order', async () => {
  const { lanes, writes, written } = harness();
  const first = lanes.wait(job('a', '1'));
  const [second, third] = [lanes.follow(job('a', '2')), lanes.follow(job('a', '3'))];
  expect(written()).toEqual(['1']);
  writes[0]?.end();
  await turn();
  expect(written()).toEqual(['1', '2,3']);
  writes[1]?.end();
  expect(await Promise.all([first, second, third])).toEqual(
    ['1', '2', '3'].map((p) => ({ id: `id-${p}`, existing: false })),
  );
  expect(lanes.follow(job('a', '4'))).toBeUndefined();
});

test('a lane that nobody waits for is not followed', () => {
  const { lanes } = harness();
  void lanes.wait(job('a', '1'));
  expect(lanes.follow(job('b', '2'))).toBeUndefined();
  expect(lanes.follow(job(undefined, '3', 'a'))).toBeUndefined();
});

test('two lanes are written at a time, the others in the order in which they came', async () => {
  const { lanes, writes, written } = harness();
  const all = ['a', 'b', 'c', 'd'].map((lane) => lanes.wait(job(lane, lane)));
  expect(written()).toEqual(['a', 'b']);
  writes[1]?.end();
  await turn();
  expect(written()).toEqual(['a', 'b', 'c']);
  for (const write of writes) write.end();
  await turn();
  for (const write of writes) write.end();
  expect((await Promise.all(all)).map(({ id }) => id)).toEqual(['id-a', 'id-b', 'id-c', 'id-d']);
});

test('a lane that stays locked goes to the end of the line, with its jobs in order', async () => {
  const { lanes, writes, written } = harness();
  const stuck = [lanes.wait(job('a', '1')), lanes.wait(job('b', '2'))];
  const waiting = lanes.wait(job('c', '3'));
  const later = lanes.follow(job('a', '4'));
  writes[0]?.fail(stillLocked);
  await turn();
  expect(written()).toEqual(['1', '2', '3']);
  writes[2]?.end();
  expect((await waiting).id).toBe('id-3');
  await turn();
  expect(written()).toEqual(['1', '2', '3', '1,4']);
  writes[1]?.end();
  writes[3]?.end();
  expect((await Promise.all([...stuck, later])).map((answer) => answer?.id)).toEqual([
    ...['id-1', 'id-2', 'id-4'],
  ]);
});

test('an error is that of the lane’s jobs in that statement, and of no other', async () => {
  const { lanes, writes, written } = harness();
  const refused = lanes.wait(job('a', '1'));
  const behind = lanes.follow(job('a', '2'));
  const other = lanes.wait(job('b', '3'));
  writes[0]?.fail(new Error('refused'));
  await expect(refused).rejects.toThrow('refused');
  await turn();
  expect(written()).toEqual(['1', '3', '2']);
  writes[1]?.end();
  writes[2]?.end();
  expect([(await other).id, (await behind)?.id]).toEqual(['id-3', 'id-2']);
});

test('jobs without a lane wait for their dedupe key', async () => {
  const { lanes, writes, written } = harness();
  const first = lanes.wait(job(undefined, '1', 'x'));
  const same = lanes.follow(job(undefined, '2', 'x'));
  expect(lanes.follow(job(undefined, '3', 'y'))).toBeUndefined();
  writes[0]?.end();
  await turn();
  expect(written()).toEqual(['1', '2']);
  writes[1]?.end();
  await Promise.all([first, same]);
});
