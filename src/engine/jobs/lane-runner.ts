import type { Database } from '../database/database.ts';
import { after, type ClaimedJob, type LaneRun } from './claim.ts';
import type { FailureReporter } from './failure-reporter.ts';
import type { Failure } from './failures.ts';
import { LaneTurns } from './lane-turns.ts';
import type { Leases } from './leases.ts';
import type { Settler } from './settle.ts';

/** What it needs of the runner that gives lanes their slots. */
export interface LaneSlots {
  /** Runs a job in the lane's slot. `ended` is called when it has ended, `failed` when it has failed. */
  readonly start: (job: ClaimedJob) => void;
  /** The lane gives its slot up. */
  readonly free: (lane: LaneRun) => void;
  /** The lane is ready again and wants a slot. */
  readonly queue: (lane: LaneRun) => void;
  /** There may be a free slot. */
  readonly pump: () => void;
  /** Other items wait for a slot, here or in the database. */
  readonly othersWait: () => boolean;
  /** There may be work that a claim would find now. */
  readonly onWork: () => void;
}

export interface LaneRunnerOptions {
  readonly database: Pick<Database, 'run'>;
  readonly worker: string;
  /** Jobs that a lane runs before it gives up its slot to others. */
  readonly laneBatch: number;
  readonly settler: Pick<Settler, 'letGo' | 'laneConfirmed' | 'dealtWith'>;
  readonly reporter: Pick<FailureReporter, 'report'>;
  readonly leases: Pick<Leases, 'lose'>;
  readonly slots: LaneSlots;
  readonly onError: (error: unknown) => void;
}

/**
 * Runs the jobs of a lane one after another, in the slot that the lane has, and lets the lane go when its turn is over,
 * when it is empty, or when its head failed. How long a turn is, and where more jobs come from, is decided in `LaneTurns`.
 */
export class LaneRunner {
  readonly #options: LaneRunnerOptions;
  readonly #turns: LaneTurns;

  constructor(options: LaneRunnerOptions) {
    this.#options = options;
    const { database, worker, laneBatch, settler, slots, onError } = options;
    this.#turns = new LaneTurns(database, worker, laneBatch, {
      resume: (lane) => slots.queue(lane),
      leave: (lane) => settler.letGo(lane),
      onError,
    });
  }

  /** No lane is kept that could not be let go. */
  get idle(): boolean {
    return this.#turns.idle;
  }

  /** The lane has got a slot. */
  begin(lane: LaneRun): void {
    this.#turns.begin(lane);
    this.#advance(lane);
  }

  /** A job of the lane has ended, and did not fail. */
  ended(lane: LaneRun): void {
    lane.ranInTurn += 1;
    this.#advance(lane);
  }

  #advance(lane: LaneRun): void {
    if (lane.claim.lost) return this.#leave(lane);
    const { slots } = this.#options;
    if (this.#turns.isOver(lane, slots.othersWait())) return this.#leave(lane);
    const job = lane.jobs[lane.next];
    if (job) {
      lane.next += 1;
      return slots.start(job);
    }
    if (lane.mayHaveMore) void this.#turns.fetch(lane).then((found) => this.#fetched(lane, found));
    else this.#leave(lane);
  }

  #fetched(lane: LaneRun, found: boolean): void {
    if (found) this.#advance(lane);
    else this.#leave(lane);
    this.#options.slots.pump();
  }

  #leave(lane: LaneRun): void {
    const last = lane.jobs[lane.next - 1];
    if (last) lane.floor = after(last.pos);
    this.#options.settler.letGo(lane);
    this.#options.slots.free(lane);
  }

  /**
   * A job of the lane has failed, and the lane has given its slot up. What came before in the lane must be confirmed first;
   * then its head waits, or the lane goes on or blocks.
   */
  async failed(failure: Failure, lane: LaneRun): Promise<void> {
    const { settler, reporter, leases, slots } = this.#options;
    await settler.laneConfirmed(lane);
    const { outcome, isLaneLetGo, isLaneBlocked } = await reporter.report(failure);
    if (outcome === 'LOST') leases.lose([lane.claim], 'its lease was taken over');
    if (isLaneLetGo) {
      settler.dealtWith(lane.claim);
      return slots.onWork();
    }
    lane.isHeadWaiting = outcome === 'QUEUED' || isLaneBlocked;
    lane.floor = outcome === 'QUEUED' ? failure.job.pos : after(failure.job.pos);
    settler.letGo(lane);
  }

  /** The lane could not be let go: a writer is writing into it. */
  kept(lane: LaneRun): void {
    this.#turns.lookAgainLater(lane);
  }

  /** Lanes that are kept without a slot; they are no longer looked at. */
  takeKept(): LaneRun[] {
    return this.#turns.takeKept();
  }

  stop(): void {
    this.#turns.stop();
  }
}
