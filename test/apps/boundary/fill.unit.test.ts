import { expect, test } from 'vitest';
import {
  bytesAt,
  capacityOf,
  defaultLimits,
  fillOf,
  isFull,
} from '../../../src/apps/boundary/limits/fill.ts';
import { describePin, pinOf } from '../../../src/apps/boundary/retention.ts';
import type { ConsumerState, StreamState } from '../../../src/apps/boundary/store/store.ts';

const limits = { ...defaultLimits, maxBytes: 1000, reserveBytes: 100 };

test('BND-9: full at 80 %, and again open at 70 %: in between a stream stays what it is', () => {
  const states = [0.1, 0.75, 0.79, 0.8, 0.75, 0.71, 0.7, 0.75, 0.9, 0];
  let full = false;
  const seen = states.map((fill) => {
    full = isFull(fill, full, limits);
    return full;
  });
  expect(seen).toEqual([false, false, false, true, true, true, false, false, true, false]);
});

test('BND-9: a stream may hold its limit, or what the disk has left; a disk without room is full at once', () => {
  expect(capacityOf(0, undefined, limits)).toBe(1000);
  expect(capacityOf(0, 10_000, limits)).toBe(1000);
  expect(capacityOf(500, 300, limits)).toBe(700);
  expect(capacityOf(500, 50, limits)).toBe(500);
  expect(fillOf(500, capacityOf(500, 50, limits))).toBe(1);
  expect(fillOf(0, capacityOf(0, 100, limits))).toBe(1);
  expect(fillOf(0, capacityOf(0, 101, limits))).toBe(0);
});

test('BND-9: room is made until the stream is down to 70 % of its limit, and of what the disk has left', () => {
  expect(bytesAt(0.7, undefined, limits)).toBe(700);
  expect(bytesAt(0.7, 10_000, limits)).toBe(700);
  expect(bytesAt(0.7, 100, limits)).toBe(0);
  const bytes = bytesAt(0.7, 250, limits);
  expect(isFull(fillOf(bytes, capacityOf(bytes, 250, limits)), true, limits)).toBe(false);
  expect(isFull(fillOf(bytes + 2, capacityOf(bytes + 2, 250, limits)), true, limits)).toBe(true);
});

test('BND-9: the slowest consumer is named as what pins the space', () => {
  const state = { buffer: 'store', to: 'enterprise', first: 11, last: 100 } as StreamState;
  const consumer = (name: string, cursor: number, confirmedAt?: Date) =>
    ({ name, cursor, confirmedAt }) as ConsumerState;
  const peer = consumer('peer:enterprise', 95, new Date(0));
  const pinned = (...consumers: ConsumerState[]) => describePin(pinOf(state, [peer, ...consumers]));
  expect(pinned(consumer('erp', 90), consumer('dead', 20, new Date(0)), consumer('mes', 100))).toBe(
    'Consumer "dead" pins 80 facts after offset 20; it last confirmed at 1970-01-01T00:00:00.000Z.',
  );
  expect(pinned(consumer('never', 0))).toContain('pins 90 facts after offset 10; it has never confirmed');
  expect(pinned(consumer('mes', 100))).toContain('Consumer "peer:enterprise" pins 5 facts after offset 95');
  expect(describePin(pinOf(state, [{ ...peer, cursor: 100 }]))).toContain('Everything is confirmed');
  expect(describePin(pinOf(state, []))).toBe(
    'No consumer has confirmed anything: 90 facts wait for the first one.',
  );
  // The other zone is to connect, and has not done so yet.
  expect(describePin(pinOf(state, [consumer('mes', 100, new Date(0))]))).toBe(
    'Consumer "peer:enterprise" pins 90 facts after offset 10; it has never confirmed anything.',
  );
  const forward = { ...state, buffer: 'forward' } as StreamState;
  expect(describePin(pinOf(forward, [consumer('mes', 100)]))).toContain('Everything is confirmed');
});
