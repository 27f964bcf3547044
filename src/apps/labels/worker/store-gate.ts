interface StoreState {
  /** In a row. */
  failures: number;
  /** Times in a row that the gate was closed without a success. */
  closed: number;
  closedUntil: number;
  isProbed: boolean;
}

/** So many pushes in a row may fail before the store is taken to be out of reach. */
const threshold = 5;
const shortestMs = 1000;
const longestMs = 60_000;

/**
 * Keeps a store whose gateway is away from taking every slot of a worker with pushes that wait for their time limit. After
 * some failures in a row its tasks are put off, unheard; when the time is past one goes through to see, and the rest
 * follow if it succeeds. Of this process alone: each finds out for itself.
 *
 *   open ──failures──> closed ──time──> probed ──success──> open
 *                        ^                 │
 *                        └─────failure─────┘  for twice as long
 */
export class StoreGate {
  readonly #stores = new Map<string, StoreState>();

  /** How long a push to this store has to wait; 0: it may go, and its outcome must be told. */
  waitMs(storeId: string, now: number): number {
    const store = this.#stores.get(storeId);
    if (!store || store.closed === 0) return 0;
    if (now < store.closedUntil) return store.closedUntil - now;
    if (store.isProbed) return shortestMs;
    store.isProbed = true;
    return 0;
  }

  /** The gateway answered, whatever it said. */
  answered(storeId: string): void {
    this.#stores.delete(storeId);
  }

  failed(storeId: string, now: number): void {
    const store = this.#stores.get(storeId) ?? { failures: 0, closed: 0, closedUntil: 0, isProbed: false };
    this.#stores.set(storeId, store);
    store.failures += 1;
    // Those that were under way when it closed tell nothing new.
    if (store.failures < threshold || (store.closed > 0 && !store.isProbed)) return;
    store.closedUntil = now + Math.min(longestMs, shortestMs * 2 ** store.closed);
    store.closed += 1;
    store.isProbed = false;
  }

  /** The push was broken off; another may go to see. */
  brokenOff(storeId: string): void {
    const store = this.#stores.get(storeId);
    if (store) store.isProbed = false;
  }
}
