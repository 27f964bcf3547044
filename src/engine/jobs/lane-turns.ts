import type { Database } from '../database/database.ts';
import { fetchMore, type LaneRun } from './claim.ts';

/** A lane goes back after this time even if nothing waits behind it, so that other workers can have it. */
const longestTurnMs = 1000;
/** When other work waits, slow jobs do not keep the slot for a whole batch. */
const sharedTurnMs = 500;
const largestFetch = 200;
const longestLookMs = 250;

export interface LaneTurnsEvents {
  /** Called when a lane without a slot has more jobs. */
  readonly resume: (lane: LaneRun) => void;
  /** Called when nothing was found: try to let it go. */
  readonly leave: (lane: LaneRun) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * How long a lane keeps its slot, and where its next jobs come from.
 *
 *   has slot ──jobs are done──▶ fetch ──found──▶ has slot
 *      │                          └──none──┐
 *      └─turn is over (others wait)─────▶ let go ──▶ goes back to its stream, waits for its head, or rests
 *                                          │ a writer is writing into it: it cannot rest
 *                                          ▼
 *                                         kept ──after a moment: fetch──▶ ready, or let go again
 *
 * A lane whose head failed is let go at its head. If that is not possible at once, it is kept and only let go again: to fetch
 * would pass the head, which would never run.
 */
export class LaneTurns {
  readonly #database: Pick<Database, 'run'>;
  readonly #worker: string;
  readonly #laneBatch: number;
  readonly #events: LaneTurnsEvents;
  readonly #kept = new Map<LaneRun, NodeJS.Timeout | undefined>();

  constructor(database: Pick<Database, 'run'>, worker: string, laneBatch: number, events: LaneTurnsEvents) {
    this.#database = database;
    this.#worker = worker;
    this.#laneBatch = laneBatch;
    this.#events = events;
  }

  /** No lane is kept that could not be let go. */
  get idle(): boolean {
    return this.#kept.size === 0;
  }

  begin(lane: LaneRun): void {
    lane.ranInTurn = 0;
    lane.turnStartedAt = performance.now();
  }

  /** Reads the clock once per batch: reading it for every fast job would cost time. */
  isOver(lane: LaneRun, othersWait: boolean): boolean {
    const ran = lane.ranInTurn;
    if (ran === 0) return false;
    if (othersWait) return ran >= this.#laneBatch || performance.now() - lane.turnStartedAt >= sharedTurnMs;
    return ran >= this.#laneBatch && performance.now() - lane.turnStartedAt >= longestTurnMs;
  }

  /** True: there is more to run. Fetches grow while the lane goes on. */
  async fetch(lane: LaneRun): Promise<boolean> {
    const limit = Math.min(largestFetch, Math.max(this.#laneBatch, lane.ranInTurn));
    try {
      return (await fetchMore(this.#database, this.#worker, lane, limit)) > 0;
    } catch (error) {
      this.#events.onError(error);
      return false;
    }
  }

  /** The lane could not be let go. */
  lookAgainLater(lane: LaneRun): void {
    if (lane.claim.lost) return this.#events.leave(lane);
    const timer = setTimeout(() => void this.#look(lane), lane.lookAgainMs);
    timer.unref();
    this.#kept.set(lane, timer);
    lane.lookAgainMs = Math.min(longestLookMs, lane.lookAgainMs * 2);
  }

  async #look(lane: LaneRun): Promise<void> {
    this.#kept.set(lane, undefined);
    const found = !lane.isHeadWaiting && (await this.fetch(lane));
    if (!this.#kept.delete(lane)) return;
    if (found) {
      lane.lookAgainMs = 2;
      this.#events.resume(lane);
    } else {
      this.#events.leave(lane);
    }
  }

  /** Lanes that are kept without a slot; they are no longer looked at. */
  takeKept(): LaneRun[] {
    const lanes = [...this.#kept.keys()];
    this.stop();
    return lanes;
  }

  stop(): void {
    for (const timer of this.#kept.values()) clearTimeout(timer);
    this.#kept.clear();
  }
}
