import { expect, test } from 'vitest';
import { Prefetch } from '../../../src/engine/jobs/prefetch.ts';

test('as many as can run at once are held before anything is known', () => {
  const prefetch = new Prefetch(10, 1000);
  expect([prefetch.target, prefetch.perSlot]).toEqual([10, 1000]);
});

test('no more is held than starts within 200 ms', () => {
  const prefetch = new Prefetch(10, 1000);
  prefetch.took(100);
  expect([prefetch.target, prefetch.perSlot]).toEqual([30, 2]);
});

test('slow jobs are not hoarded', () => {
  const prefetch = new Prefetch(10, 1000);
  prefetch.took(60_000);
  expect([prefetch.target, prefetch.perSlot]).toEqual([11, 1]);
});

test('jobs that take no time at all are held up to the limit', () => {
  const prefetch = new Prefetch(10, 1000);
  prefetch.took(0);
  expect([prefetch.target, prefetch.perSlot]).toEqual([1000, 20_000]);
});

test('a limit below the concurrency leaves no slot empty', () => {
  const prefetch = new Prefetch(10, 3);
  expect(prefetch.target).toBe(10);
  prefetch.took(1);
  expect(prefetch.target).toBe(10);
});

test('one slow job among fast ones does not empty the prefetch', () => {
  const prefetch = new Prefetch(10, 1000);
  prefetch.took(10);
  prefetch.took(210);
  // The average has moved by a twentieth of the difference.
  expect(prefetch.perSlot).toBe(10);
});
