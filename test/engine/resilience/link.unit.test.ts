import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Link, type LinkOptions, type Session } from '../../../src/engine/resilience/link.ts';
import { Outage } from '../../../src/engine/resilience/outage.ts';

beforeEach(() => {
  vi.useFakeTimers();
  // The longest wait of each backoff.
  vi.spyOn(Math, 'random').mockReturnValue(1);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** A service that connects as it is told, and what the link has said about it. */
function service(options: Partial<LinkOptions<Session>> = {}) {
  const said: string[] = [];
  const states: string[] = [];
  const signals: AbortSignal[] = [];
  const lose: ((reason: string) => void)[] = [];
  const told = { refuses: false, hangs: false, closes: true };
  const log = (level: string) => (_: object, message: string) => void said.push(`${level}: ${message}`);
  const logger = { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') };
  const link = new Link<Session>({
    connect: async (signal) => {
      signals.push(signal);
      if (told.refuses) throw new Error('refused');
      if (told.hangs) return new Promise(() => {});
      const { promise, resolve } = Promise.withResolvers<string>();
      lose.push(resolve);
      return { ended: promise, close: () => (told.closes ? Promise.resolve() : new Promise(() => {})) };
    },
    outage: new Outage(logger, {}, { down: 'down', up: 'up' }),
    reconnect: { minMs: 100, maxMs: 1_000 },
    connectTimeoutMs: 5_000,
    onState: (state, reason) => void states.push(reason === undefined ? state : `${state}: ${reason}`),
    onCleared: () => void states.push('cleared'),
    ...options,
  });
  return { link, told, said, states, signals, lose };
}

describe('link', () => {
  it('connects again after a loss, and tells of it once', async () => {
    const { link, said, states, lose, signals } = service();
    await link.start();
    expect(link.status()).toEqual({ state: 'up' });
    lose[0]?.('gone');
    await vi.advanceTimersByTimeAsync(0);
    expect(link.session).toBeUndefined();
    expect(link.status()).toEqual({ state: 'down', since: expect.any(Date), reason: 'gone' });
    expect(signals[0]?.aborted).toBe(true);
    await vi.advanceTimersByTimeAsync(100);
    expect(link.status()).toEqual({ state: 'up' });
    expect(said).toEqual(['warn: down', 'info: up']);
    expect(states).toEqual(['connecting', 'up', 'cleared', 'waiting: gone', 'connecting: gone', 'up']);
    await link.stop();
  });

  it('start resolves after a first attempt that failed; waits grow, and `since` stays', async () => {
    const { link, told, said, signals } = service();
    told.refuses = true;
    await link.start();
    const first = link.status();
    expect(first).toMatchObject({ state: 'down', reason: 'refused' });
    for (const [wait, attempts] of [
      [100, 2],
      [200, 3],
      [400, 4],
      [800, 5],
      [1_000, 6],
      [1_000, 7],
    ] as const) {
      await vi.advanceTimersByTimeAsync(wait - 1);
      expect(signals).toHaveLength(attempts - 1);
      await vi.advanceTimersByTimeAsync(1);
      expect(signals).toHaveLength(attempts);
    }
    expect(link.status()).toEqual(first);
    expect(said.filter((line) => line.startsWith('warn'))).toHaveLength(1);
    await link.stop();
  });

  it('a line that breaks soon after each connect is not redialled at full speed; one that lasted is', async () => {
    const { link, lose, signals } = service();
    await link.start();
    for (const wait of [100, 200, 400]) {
      lose.at(-1)?.('flapping');
      await vi.advanceTimersByTimeAsync(wait - 1);
      const attempts = signals.length;
      await vi.advanceTimersByTimeAsync(1);
      expect(signals).toHaveLength(attempts + 1);
    }
    await vi.advanceTimersByTimeAsync(1_001);
    lose.at(-1)?.('after a good while');
    await vi.advanceTimersByTimeAsync(100);
    expect(signals).toHaveLength(5);
    await link.stop();
  });

  it('an attempt that hangs is given up, and its sockets are cut', async () => {
    const { link, told, signals } = service();
    told.hangs = true;
    const starting = link.start();
    await vi.advanceTimersByTimeAsync(5_000);
    await starting;
    expect(link.status()).toMatchObject({ state: 'down', reason: 'no answer within 5000 ms' });
    expect(signals[0]?.aborted).toBe(true);
    await link.stop();
  });

  it('stop ends it at once: while connecting, while waiting, while up', async () => {
    for (const told of [{ hangs: true }, { refuses: true }, {}]) {
      const each = service();
      Object.assign(each.told, told);
      const starting = each.link.start();
      await vi.advanceTimersByTimeAsync(1);
      await each.link.stop();
      await starting;
      expect(each.link.status()).toMatchObject({ state: 'down', reason: 'stopped' });
      expect(each.signals.every(({ aborted }) => aborted)).toBe(true);
      expect(vi.getTimerCount()).toBe(0);
    }
  });

  it('a service that does not take its goodbye is cut off', async () => {
    const { link, told, signals } = service({ closeTimeoutMs: 300 });
    told.closes = false;
    await link.start();
    const stopping = link.stop();
    await vi.advanceTimersByTimeAsync(299);
    expect(signals[0]?.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    await stopping;
    expect(signals[0]?.aborted).toBe(true);
  });

  it('without autoReconnect a loss is for good', async () => {
    const { link, lose, states, signals } = service({ autoReconnect: false });
    await link.start();
    lose[0]?.('gone');
    await vi.advanceTimersByTimeAsync(60_000);
    expect(states).toEqual(['connecting', 'up', 'cleared', 'failed: gone']);
    expect(signals).toHaveLength(1);
    await link.stop();
  });

  it('is started once, and again after stop', async () => {
    const { link } = service();
    await link.start();
    await expect(link.start()).rejects.toMatchObject({ code: 'ALREADY_STARTED' });
    await link.stop();
    await link.start();
    expect(link.status()).toEqual({ state: 'up' });
    await link.stop();
  });
});
