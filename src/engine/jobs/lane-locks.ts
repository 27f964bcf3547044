import type { LaneLock } from '../locks/lane-lock.ts';
import type { LaneRun } from './claim.ts';

export interface LaneLocksHost {
  readonly run: (lanes: LaneRun[]) => void;
  readonly release: (lanes: LaneRun[]) => Promise<void>;
  readonly isRunning: () => boolean;
}

/** External locks on lanes that this worker has claimed: additional protection, never what decides. */
export class LaneLocks {
  readonly #lock: LaneLock;
  readonly #leaseMs: number;
  readonly #host: LaneLocksHost;
  readonly #locked = new Set<string>();

  constructor(lock: LaneLock, leaseMs: number, host: LaneLocksHost) {
    this.#lock = lock;
    this.#leaseMs = leaseMs;
    this.#host = host;
  }

  /** Runs the lanes whose lock it gets. A lane that another holder still has locked waits, inside our claim, until the lock is free. */
  async lock(lanes: LaneRun[]): Promise<void> {
    if (lanes.length === 0) return;
    const { granted } = await this.#lock.acquire(lanes.map(keyOf), this.#leaseMs);
    const may = new Set(granted);
    for (const key of granted) this.#locked.add(key);
    this.#host.run(lanes.filter((lane) => may.has(keyOf(lane))));
    const refused = lanes.filter((lane) => !may.has(keyOf(lane)) && !lane.claim.lost);
    if (refused.length === 0) return;
    if (!this.#host.isRunning()) return this.#host.release(refused);
    setTimeout(() => void this.lock(refused), 100).unref();
  }

  unlock(lane: LaneRun): void {
    if (this.#locked.delete(keyOf(lane))) void this.#lock.release([keyOf(lane)]);
  }

  /** Do not stop for a lost lock: the claim decides who commits. Try to get it again. */
  async renew(): Promise<void> {
    const lost = await this.#lock.renew([...this.#locked], this.#leaseMs);
    if (lost.length > 0) await this.#lock.acquire(lost, this.#leaseMs);
  }
}

const keyOf = (lane: LaneRun): string => `${lane.id}:${lane.key}`;
