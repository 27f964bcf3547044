import { expect, it } from 'vitest';
import { StoreGate } from '../../../src/apps/labels/worker/store-gate.ts';

it('LBL-4 a gateway that fails five times in a row is left alone, tried by one, and for twice as long if that fails', () => {
  const gate = new StoreGate();
  for (let i = 0; i < 4; i += 1) gate.failed('s', 0);
  expect(gate.waitMs('s', 0)).toBe(0);
  gate.failed('s', 0);
  expect(gate.waitMs('s', 0)).toBe(1000);
  expect(gate.waitMs('other', 0)).toBe(0);
  // Those under way do not prolong it.
  gate.failed('s', 500);
  expect(gate.waitMs('s', 999)).toBe(1);
  expect(gate.waitMs('s', 1000)).toBe(0);
  expect(gate.waitMs('s', 1000)).toBe(1000);
  gate.failed('s', 1000);
  expect(gate.waitMs('s', 1000)).toBe(2000);
  expect(gate.waitMs('s', 3000)).toBe(0);
  // The probe was broken off: another may go.
  gate.brokenOff('s');
  expect(gate.waitMs('s', 3000)).toBe(0);
  gate.answered('s');
  expect([gate.waitMs('s', 3000), gate.waitMs('s', 3000)]).toEqual([0, 0]);
});

it('a success in between starts the count anew; the pause is a minute at most', () => {
  const gate = new StoreGate();
  for (let i = 0; i < 20; i += 1) {
    gate.failed('s', 0);
    gate.failed('s', 0);
    gate.answered('s');
  }
  expect(gate.waitMs('s', 0)).toBe(0);
  let now = 0;
  for (let i = 0; i < 20; i += 1) {
    for (let n = 0; n < 5; n += 1) gate.failed('s', now);
    const waitMs = gate.waitMs('s', now);
    expect(waitMs).toBeLessThanOrEqual(60_000);
    now += waitMs;
    gate.waitMs('s', now);
  }
});
