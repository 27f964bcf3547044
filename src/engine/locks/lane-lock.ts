/**
 * Who may run a lane, beside the claim in Postgres that every worker has already won.
 *
 * The lock narrows who runs; it does not decide who commits. The claim's token is checked in
 * Postgres on every write, so a lock that is lost, slow or wiped costs a repeated run at most,
 * never order.
 */
export interface LaneLock {
  readonly name: string;
  /**
   * Tries to take each key for `ttlMs`; answers the keys it may run, and the keys that somebody else holds.
   * When the lock service is unreachable it grants them all: Postgres alone keeps the promise then.
   */
  acquire(keys: readonly string[], ttlMs: number): Promise<LaneGrant>;
  /** Extends what this holder still owns; answers the keys that it no longer owns. */
  renew(keys: readonly string[], ttlMs: number): Promise<readonly string[]>;
  /** Lets go of what this holder owns, and only of that. */
  release(keys: readonly string[]): Promise<void>;
  /** Why the lock service is away; undefined while it is not known to be. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

export interface LaneGrant {
  readonly granted: readonly string[];
  readonly refused: readonly string[];
}
