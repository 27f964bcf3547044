import { expect, test } from 'vitest';
import {
  isStalled,
  type Seen,
  type Standing,
  standingAfter,
} from '../../../../src/apps/boundary/domain/stall.ts';

/** Looks every second; returns the seconds at which it is stalled after 3 s. */
function stalledAt(looks: readonly Seen[]): number[] {
  let standing: Standing | undefined;
  return looks.flatMap((seen, second) => {
    standing = standingAfter(standing, seen, second * 1000);
    return isStalled(standing, second * 1000, 3000) ? [second] : [];
  });
}

const at = (frontier: number, waiting = 5, isConnected = true): Seen => ({ frontier, waiting, isConnected });

test('BND-10: connected, facts wait, and the frontier does not move: stalled after its time', () => {
  expect(stalledAt([at(7), at(7), at(7), at(7), at(7)])).toEqual([3, 4]);
});

test('BND-10: a frontier that moves is not stalled, however slowly it does', () => {
  expect(stalledAt([at(1), at(1), at(1), at(2), at(2), at(2), at(3)])).toEqual([]);
});

test('BND-10: without anything that waits, or while the other zone is away, nothing is stalled', () => {
  expect(stalledAt([at(7, 0), at(7, 0), at(7, 0), at(7, 0), at(7, 0)])).toEqual([]);
  expect(stalledAt([at(7, 5, false), at(7, 5, false), at(7, 5, false), at(7, 5, false)])).toEqual([]);
});

test('BND-10: the time counts from the reconnect', () => {
  expect(stalledAt([at(7), at(7), at(7, 5, false), at(7), at(7), at(7), at(7)])).toEqual([6]);
});
