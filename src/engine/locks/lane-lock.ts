/**
 * An additional lock on a lane, besides the claim in Postgres that the worker already has.
 *
 * The lock narrows who runs; it does not decide who commits. The claim's token is checked in
 * Postgres on every write, so a lock that is lost, slow or wiped costs a repeated run at most,
 * never order.
 */
export interface LaneLock {
  readonly name: string;
  /**
   * Tries to take each key for `ttlMs`; returns the keys it may run, and the keys that another holder has.
   * When the lock service is unreachable it grants them all: Postgres alone keeps the promise then.
   */
  acquire(keys: readonly string[], ttlMs: number): Promise<LaneGrant>;
  /** Extends the keys that this holder still owns; returns the keys that it no longer owns. */
  renew(keys: readonly string[], ttlMs: number): Promise<readonly string[]>;
  /** Releases only the keys that this holder owns. */
  release(keys: readonly string[]): Promise<void>;
  /** Why the lock service is down; undefined while it works. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

export interface LaneGrant {
  readonly granted: readonly string[];
  readonly refused: readonly string[];
}
