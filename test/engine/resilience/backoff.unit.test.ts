import { describe, expect, it } from 'vitest';
import { backoffMs, exponentialMs, withJitter } from '../../../src/engine/resilience/backoff.ts';

describe('backoff', () => {
  const limits = { minMs: 100, maxMs: 1_000 };

  it('waits twice as long after each failure, up to the limit, and never two processes in step', () => {
    const waits = (random: number) =>
      [0, 1, 2, 3, 4, 5_000].map((failures) => backoffMs(failures, limits, () => random));
    expect(waits(1)).toEqual([100, 200, 400, 800, 1_000, 1_000]);
    expect(waits(0)).toEqual([50, 100, 200, 400, 500, 500]);
    expect(backoffMs(0, { minMs: 5_000, maxMs: 1_000 }, () => 1)).toBe(1_000);
  });

  it('without jitter it is the full wait', () => {
    expect([0, 1, 4, 5_000].map((failures) => exponentialMs(failures, limits))).toEqual([
      100, 200, 1_000, 1_000,
    ]);
  });

  it('jitter on a chosen wait makes it up to a tenth longer, never shorter', () => {
    expect([0, 0.5, 1].map((random) => withJitter(1_000, () => random))).toEqual([1_000, 1_050, 1_100]);
  });
});
