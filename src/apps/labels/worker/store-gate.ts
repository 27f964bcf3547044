import { exponentialMs } from '../../../engine/resilience/backoff.ts';

interface StoreState {
  /** In a row. */
  failures: number;
  /** How often in a row the gate closed without a success in between. */
  closed: number;
  closedUntil: number;
  isProbed: boolean;
  /** Labels that failed since the last success. */
  readonly failed: Set<string>;
  /** A label that has not failed was postponed, and is expected back by then. */
  freshUntil: number;
}

/** How many pushes in a row may fail, other than all of one label, before the store counts as unreachable. */
const threshold = 5;
const shortestMs = 1000;
const closedLimits = { minMs: shortestMs, maxMs: 60_000 };
/** How late a busy worker may be. */
const graceMs = 5000;

/**
 * A circuit breaker for a store: pushes to an unreachable gateway must not occupy every slot of a worker until they time
 * out. After some failures in a row the store's tasks are postponed without an attempt. After the wait one task probes the
 * gateway, and the rest follow if it succeeds. Each process has its own. An open gate lets pushes through.
 *
 * Labels that fail while their gateway is healthy must not hold up the others: one failing label does not trip the breaker,
 * and labels that have not failed probe before those that have.
 *
 *   open ──failures──> closed ──time──> probed ──success──> open
 *                        ^                 │
 *                        └─────failure─────┘  for twice as long
 */
export class StoreGate {
  readonly #stores = new Map<string, StoreState>();

  /** How long a push to this label must wait; 0: it may go, and its outcome must be reported. */
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

  /** The gateway answered, with success or not. */
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
    // Pushes that were running when it closed tell nothing new.
    if (store.closed > 0 && !store.isProbed) return;
    store.closedUntil = now + exponentialMs(store.closed, closedLimits);
    store.closed += 1;
    store.isProbed = false;
  }

  /** The push was aborted; another may probe. */
  brokenOff(storeId: string): void {
    const store = this.#stores.get(storeId);
    if (store) store.isProbed = false;
  }
}
