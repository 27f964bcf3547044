import { exponentialMs } from '../../../engine/resilience/backoff.ts';

interface StoreState {
  /** In a row. */
  failures: number;
  /** Times in a row that the gate was closed without a success. */
  closed: number;
  closedUntil: number;
  isProbed: boolean;
  /** Labels that failed since the last success. */
  readonly failed: Set<string>;
  /** One that has not failed was put off, and is expected by then. */
  freshUntil: number;
}

/** So many pushes in a row may fail, or all of one label, before the store is taken to be out of reach. */
const threshold = 5;
const shortestMs = 1000;
const closedLimits = { minMs: shortestMs, maxMs: 60_000 };
/** By so much a busy worker may be late. */
const graceMs = 5000;

/**
 * Keeps a store whose gateway is away from taking every slot of a worker with pushes that wait for their time limit. After
 * some failures in a row its tasks are put off, unheard; when the time is past one goes through to see, and the rest
 * follow if it succeeds. Of this process alone: each finds out for itself.
 *
 * Labels that fail while their gateway is well must not hold up the others: one alone closes nothing, and those that have
 * not failed are sent to see before those that have.
 *
 *   open ──failures──> closed ──time──> probed ──success──> open
 *                        ^                 │
 *                        └─────failure─────┘  for twice as long
 */
export class StoreGate {
  readonly #stores = new Map<string, StoreState>();

  /** How long a push to this label of the store has to wait; 0: it may go, and its outcome must be told. */
  waitMs(storeId: string, label: string, now: number): number {
    const store = this.#stores.get(storeId);
    if (!store || store.closed === 0) return 0;
    const isFresh = !store.failed.has(label);
    const isTaken = store.isProbed || (!isFresh && now < store.freshUntil);
    const waitMs = now < store.closedUntil ? store.closedUntil - now : isTaken ? shortestMs : 0;
    if (waitMs === 0) store.isProbed = true;
    else if (isFresh) store.freshUntil = now + waitMs + graceMs;
    return waitMs;
  }

  /** The gateway answered, whatever it said. */
  answered(storeId: string): void {
    this.#stores.delete(storeId);
  }

  failed(storeId: string, label: string, now: number): void {
    const store = this.#stores.get(storeId) ?? {
      failures: 0,
      closed: 0,
      closedUntil: 0,
      isProbed: false,
      failed: new Set(),
      freshUntil: 0,
    };
    this.#stores.set(storeId, store);
    store.failures += 1;
    store.failed.add(label);
    if (store.failures < threshold || store.failed.size === 1) return;
    // Those that were under way when it closed tell nothing new.
    if (store.closed > 0 && !store.isProbed) return;
    store.closedUntil = now + exponentialMs(store.closed, closedLimits);
    store.closed += 1;
    store.isProbed = false;
  }

  /** The push was broken off; another may go to see. */
  brokenOff(storeId: string): void {
    const store = this.#stores.get(storeId);
    if (store) store.isProbed = false;
  }
}
