import { vi } from 'vitest';

/** Waits until the assertions hold, for as long as a busy machine may need. */
export const eventually = <T>(assertions: () => T | Promise<T>): Promise<T> =>
  vi.waitFor(assertions, { timeout: 30_000, interval: 10 });
