import { type Database, isPassing } from '../database/database.ts';
import { statementRetry } from '../database/outage.ts';
import { messageOf } from '../errors.ts';
import { backoffMs } from '../resilience/backoff.ts';
import { pause } from '../resilience/deadline.ts';
import { type Settled, settle, someAreGone } from '../sql/settle.ts';
import { arrayOf } from '../sql/sql-function.ts';
import type { Claim, ClaimedJob, LaneRun } from './claim.ts';
import { runWithoutJobContext } from './running.ts';

/** Jobs of one settle. Beyond this the statement takes long enough to make others wait. */
const maxBatch = 2000;
const maxInFlight = 2;

export interface SettlerEvents {
  /** A write found the token gone. Another worker has its jobs. */
  readonly onLost: (claims: readonly Claim[]) => void;
  /** A function: listing the jobs costs time, and most observers do not need them. */
  readonly onSettled: (jobs: () => readonly ClaimedJob[]) => void;
  /** A lane that was let go has more work. */
  readonly onRequeued: () => void;
  /** A writer keeps the lane from coming to rest: there will be more jobs in it. It is still this worker's. */
  readonly onKept: (lane: LaneRun) => void;
  /** The database refuses to complete the job in any way. Resolves when the job has ended otherwise. */
  readonly onRefused: (job: ClaimedJob, refusal: unknown) => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/**
 * Confirms what was run, in batches, fenced by the claim's token.
 *
 * Free jobs go in up to two batches at once. Completions of one lane are never in two: the second could commit and
 * the first be lost in a crash, and the lane would be run again out of order. Further completions of a lane wait, with
 * the lane, until its batch is back.
 */
export class Settler {
  readonly #database: Pick<Database, 'run' | 'logger'>;
  readonly #worker: string;
  readonly #keepMs: number;
  readonly #events: SettlerEvents;
  #free: ClaimedJob[] = [];
  /** Lanes with something to settle, each once. */
  #lanes: LaneRun[] = [];
  #inFlight = 0;
  #scheduled = false;
  #idle: (() => void)[] = [];
  /** Empty claims; the next statement of this worker deletes their rows. */
  readonly #drops: string[] = [];

  constructor(
    database: Pick<Database, 'run' | 'logger'>,
    worker: string,
    keepMs: number,
    events: SettlerEvents,
  ) {
    this.#database = database;
    this.#worker = worker;
    this.#keepMs = keepMs;
    this.#events = events;
  }

  /** It was run, or is superseded. */
  complete(job: ClaimedJob): void {
    if (job.lane) {
      job.lane.done.push(job);
      this.#putInLine(job.lane);
    } else {
      this.#free.push(job);
    }
    this.#schedule();
  }

  /** After the completions handed in so far: the lane goes back to its stream, waits, or rests. */
  letGo(lane: LaneRun): void {
    lane.isLeaving = true;
    this.#putInLine(lane);
    this.#schedule();
  }

  /** Resolves when everything of the lane handed in so far is confirmed (or lost). */
  async laneConfirmed(lane: LaneRun): Promise<void> {
    if (lane.isInLine || lane.isSettling) await new Promise<void>((resolve) => lane.waiting.push(resolve));
  }

  /** Resolves when nothing is pending or under way. */
  async flushed(): Promise<void> {
    if (this.busy) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  get busy(): boolean {
    return this.#inFlight > 0 || this.#isPending;
  }

  get #isPending(): boolean {
    return this.#free.length > 0 || this.#lanes.length > 0;
  }

  /** Tokens of empty claims whose rows are still there. */
  get drops(): readonly string[] {
    return this.#drops;
  }

  /** Returns the tokens of empty claims; the next claim deletes them. */
  takeDrops(): string[] {
    return this.#drops.splice(0);
  }

  /** One item of the claim is dealt with, by a settle or otherwise. */
  dealtWith(claim: Claim): void {
    claim.left -= 1;
    if (claim.left === 0 && !claim.lost) this.#drops.push(claim.token);
  }

  #putInLine(lane: LaneRun): void {
    if (lane.isInLine || lane.isSettling) return;
    lane.isInLine = true;
    this.#lanes.push(lane);
  }

  #schedule(): void {
    if (this.#scheduled || this.#inFlight >= maxInFlight) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      runWithoutJobContext(() => this.#flush());
    });
  }

  #flush(): void {
    while (this.#inFlight < maxInFlight && this.#isPending) {
      this.#inFlight += 1;
      void this.#send(this.#takeBatch());
    }
    if (!this.busy) for (const resolve of this.#idle.splice(0)) resolve();
  }

  #takeBatch(): Batch {
    // Half for each: neither free jobs nor lanes wait forever.
    const free = takeFirst(this.#free, this.#lanes.length > 0 ? maxBatch / 2 : maxBatch);
    this.#free = free.rest;
    const stretches: Stretch[] = [];
    for (let room = maxBatch - free.taken.length; room > 0 && stretches.length < this.#lanes.length; ) {
      const lane = this.#lanes[stretches.length] as LaneRun;
      stretches.push({ lane, jobs: lane.done, isLeaving: lane.isLeaving });
      room -= Math.max(1, lane.done.length);
      lane.done = [];
      lane.isLeaving = false;
      lane.isInLine = false;
      lane.isSettling = true;
    }
    this.#lanes = takeFirst(this.#lanes, stretches.length).rest;
    return new Batch(free.taken, stretches);
  }

  async #send(batch: Batch): Promise<void> {
    const drops = this.takeDrops();
    for (const claim of batch.lastOf()) drops.push(claim.token);
    await this.#settle(batch, drops);
    this.#forget(batch);
    this.#inFlight -= 1;
    this.#schedule();
  }

  /** Retries until the outcome is known. Repeating is safe: jobs that are already completed are found missing. */
  async #settle(batch: Batch, drops: readonly string[]): Promise<void> {
    let isExact = batch.isKeyed;
    for (let failures = 0; !batch.claims.every((claim) => claim.lost); ) {
      try {
        const settled = await settle(this.#database, {
          ...batch.toSettle(isExact),
          worker: this.#worker,
          keepMs: this.#keepMs,
          drop: arrayOf(drops, (token) => token),
        });
        const lost = new Set(settled.lost);
        if (lost.size === 0) return this.#received(batch, settled, failures > 0);
        this.#events.onLost(batch.claims.filter((claim) => lost.has(claim.token)));
      } catch (error) {
        const { code } = error as { code?: string };
        if (code === someAreGone && !isExact) {
          isExact = true;
          continue;
        }
        isExact = true;
        this.#events.onError(error);
        this.#database.logger.warn(
          { error: messageOf(error), jobs: batch.jobs().length },
          'settle failed; trying again',
        );
        // Refused twice by a running server: one of the jobs is the cause, and the others must not wait for it.
        if (failures > 0 && !isPassing(error)) return this.#settleApart(batch, drops, error);
        await pause(backoffMs(failures, statementRetry));
        failures += 1;
      }
    }
  }

  /** In halves, one after the other, so that jobs of a lane stay in order. */
  async #settleApart(batch: Batch, drops: readonly string[], refusal: unknown): Promise<void> {
    const [job, ...others] = batch.jobs();
    if (others.length > 0) {
      for (const half of batch.halves()) await this.#settle(half, []);
    } else if (job && !job.claim.lost) {
      await this.#events.onRefused(job, refusal);
    }
    if (others.length === 0)
      for (const { lane, isLeaving } of batch.stretches) if (isLeaving) batch.kept.add(lane);
    this.#drops.push(...drops.filter((token) => !batch.claims.some((claim) => claim.token === token)));
    batch.dropped.clear();
  }

  #received(batch: Batch, { missing, letGo, requeued }: Settled, repeated: boolean): void {
    const gone = new Set(repeated ? [] : missing);
    const left = new Set(letGo);
    for (const { lane, isLeaving } of batch.stretches)
      if (isLeaving && !left.has(lane.id) && !lane.claim.lost) batch.kept.add(lane);
    this.#events.onSettled(() => batch.jobs().filter((job) => !job.claim.lost && !gone.has(job.pos)));
    if (requeued) this.#events.onRequeued();
  }

  /** Settled or lost: this worker is done with the batch, except for lanes that it has to keep. */
  #forget(batch: Batch): void {
    for (const [claim, jobs] of batch.freeOf) claim.left -= jobs;
    for (const { lane, isLeaving } of batch.stretches) {
      const isKept = batch.kept.has(lane);
      if (isLeaving && !isKept) lane.claim.left -= 1;
      lane.isSettling = false;
      if (lane.done.length > 0 || lane.isLeaving) this.#putInLine(lane);
      else for (const resolve of lane.waiting.splice(0)) resolve();
      if (isKept) this.#events.onKept(lane);
    }
    for (const claim of batch.claims) {
      if (claim.left === 0 && !claim.lost && !batch.dropped.has(claim)) this.#drops.push(claim.token);
    }
  }
}

/** Jobs of a lane that were run one after another, and whether it is let go behind them. */
interface Stretch {
  readonly lane: LaneRun;
  readonly jobs: readonly ClaimedJob[];
  readonly isLeaving: boolean;
}

class Batch {
  readonly free: readonly ClaimedJob[];
  readonly stretches: readonly Stretch[];
  /** Lanes that could not be let go: still this worker's. */
  kept = new Set<LaneRun>();
  readonly dropped = new Set<Claim>();
  /** Every claim, and how many of its free jobs: 0 where all are in lanes. */
  readonly freeOf = new Map<Claim, number>();
  /** One of the jobs has a dedupe key. */
  readonly isKeyed: boolean;

  constructor(free: readonly ClaimedJob[], stretches: readonly Stretch[]) {
    this.free = free;
    this.stretches = stretches;
    for (const { claim } of free) this.freeOf.set(claim, (this.freeOf.get(claim) ?? 0) + 1);
    for (const { lane } of stretches) if (!this.freeOf.has(lane.claim)) this.freeOf.set(lane.claim, 0);
    this.isKeyed =
      free.some((job) => job.keyed) || stretches.some(({ jobs }) => jobs.some((job) => job.keyed));
  }

  get claims(): Claim[] {
    return [...this.freeOf.keys()];
  }

  jobs(): ClaimedJob[] {
    return [...this.free, ...this.stretches.flatMap(({ jobs }) => jobs)];
  }

  /** Claims of which this batch settles all that is left: their rows can go with it. */
  lastOf(): Claim[] {
    const last: Claim[] = [];
    for (const [claim, jobs] of this.freeOf)
      if (jobs > 0 && jobs === claim.left) {
        last.push(claim);
        this.dropped.add(claim);
      }
    return last;
  }

  /** Two batches; a lane in both is let go with the second. */
  halves(): [Batch, Batch] {
    let room = Math.ceil(this.jobs().length / 2);
    const free = takeFirst([...this.free], room);
    room -= free.taken.length;
    const first: Stretch[] = [];
    const second: Stretch[] = [];
    for (const { lane, jobs, isLeaving } of this.stretches) {
      const { taken, rest } = takeFirst([...jobs], Math.max(0, room));
      room -= taken.length;
      if (taken.length > 0) first.push({ lane, jobs: taken, isLeaving: false });
      if (rest.length > 0 || isLeaving) second.push({ lane, jobs: rest, isLeaving });
    }
    const halves: [Batch, Batch] = [new Batch(free.taken, first), new Batch(free.rest, second)];
    for (const half of halves) half.kept = this.kept;
    return halves;
  }

  /** Arrays go as text that is ready to be read: the driver would quote and escape each number. */
  toSettle(isExact: boolean) {
    const claims = this.claims.filter((claim) => !claim.lost);
    const free = this.free.filter((job) => !job.claim.lost);
    const stretches = this.stretches.filter(({ lane }) => !lane.claim.lost);
    const run = stretches.filter(({ jobs }) => jobs.length > 0);
    const leaving = stretches.filter(({ isLeaving }) => isLeaving);
    const inLanes = run.flatMap(({ jobs }) => jobs);
    const superseded = inLanes.filter((job) => job.superseded);
    return {
      claims: arrayOf(claims, (claim) => claim.token),
      streams: arrayOf(new Set(claims.map((claim) => claim.stream)), String),
      positions: arrayOf(free, positionOf),
      jobLanes: arrayOf(run, ({ lane }) => lane.id),
      firstSeqs: arrayOf(run, ({ jobs }) => positionOf(jobs[0] as ClaimedJob)),
      lastSeqs: arrayOf(run, ({ jobs }) => positionOf(jobs.at(-1) as ClaimedJob)),
      seqs: isExact ? arrayOf(inLanes, positionOf) : none,
      superseded: arrayOf(superseded, positionOf),
      lanes: arrayOf(leaving, ({ lane }) => lane.id),
      lanePositions: arrayOf(leaving, ({ lane }) => lane.pos),
      laneFloors: arrayOf(leaving, ({ lane }) => lane.floor),
      laneMore: arrayOf(leaving, ({ lane }) => (lane.hasMore ? 't' : 'f')),
      expected: isExact ? null : free.length + inLanes.length,
    };
  }
}

const none = '{}';
const positionOf = (job: ClaimedJob): string => job.pos;

function takeFirst<T>(items: T[], count: number): { taken: T[]; rest: T[] } {
  return items.length <= count
    ? { taken: items, rest: [] }
    : { taken: items.slice(0, count), rest: items.slice(count) };
}
