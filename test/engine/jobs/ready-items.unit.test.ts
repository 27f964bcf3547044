import { expect, test } from 'vitest';
import { Claim, ClaimedJob } from '../../../src/engine/jobs/claim.ts';
import { ReadyItems } from '../../../src/engine/jobs/ready-items.ts';

const claim = new Claim('1', 1, 'q', 2);
const job = (pos: number) => new ClaimedJob(claim, undefined, String(pos), 'k', null, 0);
const positions = (items: readonly unknown[]) => items.map((item) => Number((item as ClaimedJob).pos));

test('items start in the order in which they came; those that go first come before all others', () => {
  const ready = new ReadyItems();
  for (const pos of [1, 2, 3]) ready.put(job(pos));
  expect(ready.take()?.claim).toBe(claim);
  ready.putFirst(job(9));
  ready.putFirst(job(8));
  expect(positions(ready.takeAll())).toEqual([8, 9, 2, 3]);
  expect(ready.isEmpty).toBe(true);
});

test('an empty one answers nothing, and takes more afterwards', () => {
  const ready = new ReadyItems();
  expect(ready.take()).toBeUndefined();
  ready.put(job(1));
  expect(positions([ready.take()])).toEqual([1]);
  expect(ready.take()).toBeUndefined();
  ready.putFirst(job(2));
  ready.put(job(3));
  expect(ready.isEmpty).toBe(false);
  expect(positions([ready.take(), ready.take()])).toEqual([2, 3]);
  expect(ready.isEmpty).toBe(true);
});
