import { expect, it } from 'vitest';
import { StoreGate } from '../../../src/apps/labels/worker/store-gate.ts';

it('LBL-4 a gateway that fails five times in a row is left alone, tried by one, and for twice as long if that fails', () => {
  const gate = new StoreGate();
  for (const label of ['a', 'b', 'a', 'b']) gate.failed('s', label, 0);
  expect(gate.waitMs('s', 'a', 0)).toBe(0);
  gate.failed('s', 'a', 0);
  expect(gate.waitMs('s', 'a', 0)).toBe(1000);
  expect(gate.waitMs('other', 'a', 0)).toBe(0);
  // Those under way do not prolong it.
  gate.failed('s', 'a', 500);
  expect(gate.waitMs('s', 'a', 999)).toBe(1);
  expect(gate.waitMs('s', 'a', 1000)).toBe(0);
  expect(gate.waitMs('s', 'a', 1000)).toBe(1000);
  gate.failed('s', 'a', 1000);
  expect(gate.waitMs('s', 'a', 1000)).toBe(2000);
  expect(gate.waitMs('s', 'a', 3000)).toBe(0);
  // The probe was broken off: another may go.
  gate.brokenOff('s');
  expect(gate.waitMs('s', 'a', 3000)).toBe(0);
  gate.answered('s');
  expect([gate.waitMs('s', 'a', 3000), gate.waitMs('s', 'a', 3000)]).toEqual([0, 0]);
});

it('a success in between starts the count anew; the pause is a minute at most', () => {
  const gate = new StoreGate();
  for (let i = 0; i < 20; i += 1) {
    gate.failed('s', 'a', 0);
    gate.failed('s', 'b', 0);
    gate.answered('s');
  }
  expect(gate.waitMs('s', 'a', 0)).toBe(0);
  let now = 0;
  for (let i = 0; i < 20; i += 1) {
    for (const label of ['a', 'b', 'c', 'd', 'e']) gate.failed('s', label, now);
    const waitMs = gate.waitMs('s', 'a', now);
    expect(waitMs).toBeLessThanOrEqual(60_000);
    now += waitMs;
    gate.waitMs('s', 'a', now);
  }
});

it('LBL-4 one label that always fails closes nothing', () => {
  const gate = new StoreGate();
  for (let i = 0; i < 20; i += 1) gate.failed('s', 'bad', 0);
  expect(gate.waitMs('s', 'good', 0)).toBe(0);
  gate.failed('s', 'worse', 0);
  expect(gate.waitMs('s', 'good', 0)).toBe(1000);
});

it('LBL-4 labels that always fail are not sent to see while one that has not failed waits', () => {
  const gate = new StoreGate();
  const fail = (now: number) => {
    for (const label of ['a', 'b', 'a', 'b', 'a']) gate.failed('s', label, now);
  };
  fail(0);
  expect(gate.waitMs('s', 'good', 0)).toBe(1000);
  expect(gate.waitMs('s', 'a', 1000)).toBe(1000);
  expect(gate.waitMs('s', 'good', 1010)).toBe(0);
  gate.answered('s');
  expect(gate.waitMs('s', 'a', 1010)).toBe(0);

  // Unless that one stays away: another process may have it by now.
  fail(2000);
  expect(gate.waitMs('s', 'good', 2000)).toBe(1000);
  expect(gate.waitMs('s', 'b', 7999)).toBe(1000);
  expect(gate.waitMs('s', 'b', 8000)).toBe(0);
});
