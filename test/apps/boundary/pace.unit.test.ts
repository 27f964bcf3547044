import { describe, expect, test } from 'vitest';
import { Pace, type PaceOptions } from '../../../src/apps/boundary/handoff/pace.ts';

const { signal } = new AbortController();

/** A clock that goes on while somebody waits. */
function paced(options: PaceOptions) {
  let now = 0;
  const waits: number[] = [];
  const pace = new Pace({
    ...options,
    clock: () => now,
    wait: async (ms) => {
      waits.push(ms);
      now += ms;
    },
  });
  const take = (facts: number, backlog: number, bytes = 1) =>
    pace.take(
      { entries: Array.from({ length: facts }, () => ({ text: 'x'.repeat(bytes) })), backlog },
      signal,
    );
  return { pace, waits, take, now: () => now };
}

describe('Pace', () => {
  test('BND-9: a backlog drains at so many facts a second', async () => {
    const { pace, take, now } = paced({ factsPerSecond: 50 });
    expect(pace.batch(500)).toEqual({ limit: 50, maxBytes: 1024 * 1024 });
    for (let left = 1000; left > 0; left -= 50) await take(50, left + 1);
    expect(now()).toBe(19_000);
  });

  test('BND-9: or at so many bytes a second', async () => {
    const { pace, take, now } = paced({ bytesPerSecond: 1000 });
    expect(pace.batch(500)).toEqual({ limit: 500, maxBytes: 1000 });
    for (let i = 0; i < 5; i++) await take(10, 100, 100);
    expect(now()).toBe(4000);
    expect(new Pace({ factsPerSecond: 0.5, bytesPerSecond: 0.1 }).batch(500)).toEqual({
      limit: 1,
      maxBytes: 1,
    });
  });

  test('BND-9: what producers append now is not slowed down, nor anything without limits', async () => {
    const live = paced({ factsPerSecond: 1 });
    for (let i = 0; i < 100; i++) await live.take(3, 3);
    expect(live.waits).toEqual([]);
    const free = paced({});
    for (let i = 0; i < 100; i++) await free.take(500, 10_000);
    expect(free.waits).toEqual([]);
  });

  test('BND-9: appends go first, but a backlog drains under load, too', async () => {
    let busyFor = 3;
    const { take, waits } = paced({ isBusy: () => busyFor-- > 0 });
    await take(10, 100);
    expect(waits).toEqual([5, 5, 5]);
    const always = paced({ isBusy: () => true, stepBackMs: 20 });
    await always.take(10, 100);
    expect(always.waits).toEqual([5, 5, 5, 5]);
  });
});
