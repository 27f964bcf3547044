import { deadline } from '../resilience/deadline.ts';

/** Readers look again after this time, whether they were woken or not. */
const pollMs = 1000;

export interface Waiting {
  /** Resolves when the stream may have grown, after a poll interval at the latest, or when the signal fires. */
  readonly grown: Promise<void>;
  /** Gives up. */
  readonly end: () => void;
}

/** Readers of one process that wait for a stream to grow. */
export class GrowthWaiters {
  readonly #waiting = new Map<string, Set<() => void>>();

  /** Begins to wait, from the moment of the call. */
  await(stream: string, signal: AbortSignal): Waiting {
    const { promise: grown, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(stream) ?? new Set();
    this.#waiting.set(stream, waiting);
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      waiting.delete(end);
      if (waiting.size === 0 && this.#waiting.get(stream) === waiting) this.#waiting.delete(stream);
      resolve();
    };
    waiting.add(end);
    const timer = setTimeout(end, pollMs);
    signal.addEventListener('abort', end, { once: true });
    return { grown, end };
  }

  wake(stream: string): void {
    for (const end of [...(this.#waiting.get(stream) ?? [])]) end();
  }

  wakeAll(): void {
    for (const stream of [...this.#waiting.keys()]) this.wake(stream);
  }
}

const neverAborted = new AbortController().signal;

/**
 * Looks, and looks again whenever the stream may have grown, until there is something or `waitMs` are over. It begins to wait
 * before each look, so that what is appended in between is not missed.
 */
export async function lookUntilGrown<T>(
  look: () => Promise<T[]>,
  { waitMs, signal }: { readonly waitMs: number; readonly signal: AbortSignal | undefined },
  awaitGrowth: (signal: AbortSignal) => Waiting,
): Promise<T[]> {
  const waiting = deadline(waitMs, signal ?? neverAborted, () => new Error('waited long enough'));
  try {
    for (;;) {
      const growth = awaitGrowth(waiting.signal);
      try {
        const found = await look();
        if (found.length > 0 || waiting.signal.aborted) return found;
        await growth.grown;
      } finally {
        growth.end();
      }
    }
  } finally {
    waiting.clear();
  }
}
