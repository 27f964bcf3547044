import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Database } from '../database/database.ts';
import type { RawRow, Value } from '../database/hot-query.ts';
import { messageOf } from '../errors.ts';
import { type Claim, type ClaimedJob, idsOf, type LaneRun, type LetGo, type Unconfirmed } from './claim.ts';

const settleStatement = {
  name: 'tm_settle',
  text: 'select lost, missing, let_go from tallyman.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)',
};

/** Jobs of one settle. Beyond this the statement takes long enough to make others wait. */
const maxBatch = 2000;
const maxInFlight = 2;

/** What a settle that was not exact answers when it does not find all of the jobs. */
const someAreGone = 'TM001';

export interface SettlerEvents {
  /** A write found the token gone. Its jobs are somebody else's. */
  readonly onLost: (claims: readonly Claim[]) => void;
  readonly onSettled: (jobs: readonly ClaimedJob[]) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Confirms what was run, in batches, fenced by the claim's token.
 *
 * Free jobs go in up to two batches at once. Completions of one lane are never in two: the second could commit and
 * the first be lost in a crash, and the lane would be run again out of order.
 */
export class Settler {
  readonly #database: Database;
  readonly #worker: string;
  readonly #keepMs: number;
  readonly #events: SettlerEvents;
  #pending: Unconfirmed[] = [];
  #inFlight = 0;
  #scheduled = false;
  #idle: (() => void)[] = [];
  /** Claims of which nothing is left; the next statement of this worker takes their rows away. */
  readonly #drops: string[] = [];

  constructor(database: Database, worker: string, keepMs: number, events: SettlerEvents) {
    this.#database = database;
    this.#worker = worker;
    this.#keepMs = keepMs;
    this.#events = events;
  }

  complete(job: ClaimedJob, status: 'SUCCEEDED' | 'SUPERSEDED' = 'SUCCEEDED'): void {
    if (job.lane) job.lane.unconfirmed += 1;
    this.#pending.push({ job, status });
    this.#schedule();
  }

  /** After the completions handed in so far: the lane goes back to its stream, waits, or rests. */
  letGo(lane: LaneRun): void {
    lane.unconfirmed += 1;
    this.#pending.push({ letGo: lane, retryMs: 10 });
    this.#schedule();
  }

  /** Resolves when everything of the lane handed in so far is confirmed (or lost). */
  async laneConfirmed(lane: LaneRun): Promise<void> {
    if (lane.unconfirmed > 0) await new Promise<void>((resolve) => lane.waiting.push(resolve));
  }

  /** Resolves when nothing is pending or under way. */
  async flushed(): Promise<void> {
    if (this.#inFlight === 0 && this.#pending.length === 0) return;
    await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  get busy(): boolean {
    return this.#inFlight > 0 || this.#pending.length > 0;
  }

  /** Hands over the tokens to drop, for a claim to carry. */
  takeDrops(): string[] {
    return this.#drops.splice(0);
  }

  /** One item of the claim is dealt with, by a settle or otherwise. */
  dealtWith(claim: Claim): void {
    claim.left -= 1;
    if (claim.left === 0 && !claim.lost) this.#drops.push(claim.token);
  }

  /**
   * Completes one job inside the handler's own transaction. False: the lease is lost, roll back.
   * The lane's row, if there is one, is not touched: letting go comes later.
   */
  async completeWithin(tx: pg.ClientBase, job: ClaimedJob): Promise<boolean> {
    // A batch leaves out what is lost: it would complete nothing, refuse nothing, and let the effect be committed.
    if (job.claim.lost) return false;
    const batch = new Batch();
    batch.add({ job, status: 'SUCCEEDED' });
    const [row = []] = await this.#database.run(
      settleStatement,
      batch.values(this.#worker, this.#keepMs, [], true),
      tx,
    );
    return idsOf(row[0]).length === 0 && idsOf(row[1]).length === 0;
  }

  #schedule(): void {
    if (this.#scheduled || this.#inFlight >= maxInFlight) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    while (this.#inFlight < maxInFlight) {
      const batch = this.#takeBatch();
      if (!batch) break;
      this.#inFlight += 1;
      void this.#send(batch);
    }
    if (this.#inFlight === 0 && this.#pending.length === 0) {
      for (const resolve of this.#idle.splice(0)) resolve();
    }
  }

  #takeBatch(): Batch | undefined {
    const batch = new Batch();
    let taken = 0;
    let seen = 0;
    for (const entry of this.#pending) {
      if (taken >= maxBatch) break;
      seen += 1;
      const lane = entry.job ? entry.job.lane : entry.letGo;
      if (lane?.settling && !batch.lanes.has(lane)) {
        lane.behind.push(entry);
        continue;
      }
      taken += 1;
      if (lane) {
        lane.settling = true;
        batch.lanes.add(lane);
      }
      batch.add(entry);
    }
    this.#pending.splice(0, seen);
    return taken > 0 ? batch : undefined;
  }

  /** Tries until it is known: repeating is safe, since what was done before is found missing. */
  async #send(batch: Batch): Promise<void> {
    const drops = this.takeDrops();
    for (const claim of batch.lastOf()) drops.push(claim.token);
    let failures = 0;
    let isExact = batch.isKeyed;
    while (!batch.claims.every((claim) => claim.lost)) {
      try {
        const [row = []] = await this.#database.run(
          settleStatement,
          batch.values(this.#worker, this.#keepMs, drops, isExact),
        );
        const lost = new Set(idsOf(row[0]));
        if (lost.size === 0) {
          this.#received(batch, row, failures > 0);
          break;
        }
        this.#events.onLost(batch.claims.filter((claim) => lost.has(claim.token)));
      } catch (error) {
        isExact = true;
        if ((error as { code?: string }).code === someAreGone) continue;
        this.#events.onError(error);
        this.#database.logger.warn(
          { error: messageOf(error), jobs: batch.jobs.length },
          'settle failed; trying again',
        );
        await sleep(Math.min(2000, 20 * 2 ** failures) * (0.5 + Math.random() / 2));
        failures += 1;
      }
    }
    this.#forget(batch);
    this.#inFlight -= 1;
    this.#schedule();
  }

  #received(batch: Batch, row: RawRow, repeated: boolean): void {
    const missing = new Set(repeated ? [] : idsOf(row[1]));
    const letGo = new Set(idsOf(row[2]));
    for (const entry of batch.letGos) {
      if (letGo.has(entry.letGo.id) || entry.letGo.claim.lost) continue;
      batch.kept.add(entry.letGo);
      this.#letGoLater(entry);
    }
    this.#events.onSettled(batch.jobs.filter((job) => !job.claim.lost && !missing.has(job.pos)));
  }

  /** Settled or lost: nothing of the batch is this worker's concern any more, but for lanes kept to be let go later. */
  #forget(batch: Batch): void {
    for (const job of batch.jobs) {
      if (job.lane) job.lane.unconfirmed -= 1;
      else job.claim.left -= 1;
    }
    for (const { letGo: lane } of batch.letGos) {
      if (batch.kept.has(lane)) continue;
      lane.unconfirmed -= 1;
      lane.claim.left -= 1;
    }
    const behind: Unconfirmed[] = [];
    for (const lane of batch.lanes) {
      lane.settling = false;
      if (lane.behind.length > 0) behind.push(...lane.behind.splice(0));
      if (lane.unconfirmed === 0 && lane.waiting.length > 0)
        for (const resolve of lane.waiting.splice(0)) resolve();
    }
    // In front: what has come since, and waits among the pending, comes after it in its lane.
    if (behind.length > 0) this.#pending = behind.concat(this.#pending);
    for (const claim of batch.claims) {
      if (claim.left === 0 && !claim.lost && !batch.dropped.has(claim)) this.#drops.push(claim.token);
    }
  }

  /** A writer has the lane locked. Its claim stays, nothing else waits for it. */
  #letGoLater(entry: LetGo): void {
    const timer = setTimeout(() => {
      this.#pending.push({ letGo: entry.letGo, retryMs: Math.min(500, entry.retryMs * 2) });
      this.#schedule();
    }, entry.retryMs);
    timer.unref();
  }
}

class Batch {
  readonly jobs: ClaimedJob[] = [];
  readonly letGos: LetGo[] = [];
  readonly lanes = new Set<LaneRun>();
  /** Lanes that a writer had locked: still ours. */
  readonly kept = new Set<LaneRun>();
  readonly dropped = new Set<Claim>();
  readonly #claims = new Map<Claim, number>();
  readonly #superseded: string[] = [];
  /** One of the jobs has a dedupe key. */
  isKeyed = false;

  add(entry: Unconfirmed): void {
    if (entry.letGo) {
      this.letGos.push(entry);
      if (!this.#claims.has(entry.letGo.claim)) this.#claims.set(entry.letGo.claim, 0);
      return;
    }
    const { job, status } = entry;
    if (status === 'SUPERSEDED') this.#superseded.push(job.pos);
    if (job.keyed) this.isKeyed = true;
    this.jobs.push(job);
    this.#claims.set(job.claim, (this.#claims.get(job.claim) ?? 0) + (job.lane ? 0 : 1));
  }

  get claims(): Claim[] {
    return [...this.#claims.keys()];
  }

  /** Claims of which this batch settles all that is left: their rows can go with it. */
  lastOf(): Claim[] {
    const last: Claim[] = [];
    for (const [claim, jobs] of this.#claims)
      if (jobs > 0 && jobs === claim.left) {
        last.push(claim);
        this.dropped.add(claim);
      }
    return last;
  }

  /** Arrays go as text that is ready to be read: the driver would quote and escape each number. */
  values(worker: string, keepMs: number, drops: readonly string[], isExact: boolean): Value[] {
    const claims = this.claims.filter((claim) => !claim.lost);
    const jobs = this.jobs.filter((job) => !job.claim.lost);
    const free = jobs.filter((job) => !job.lane);
    const inLanes = free.length < jobs.length ? jobs.filter((job) => job.lane) : [];
    const lanes = this.letGos.map((entry) => entry.letGo).filter((lane) => !lane.claim.lost);
    return [
      worker,
      arrayOf(claims.map((claim) => claim.token)),
      arrayOf([...new Set(claims.map((claim) => String(claim.stream)))]),
      arrayOf(free.map((job) => job.pos)),
      ...stretches(inLanes),
      isExact ? arrayOf(inLanes.map((job) => job.pos)) : '{}',
      arrayOf(this.#superseded),
      keepMs,
      arrayOf(lanes.map((lane) => lane.id)),
      arrayOf(lanes.map((lane) => lane.pos)),
      arrayOf(lanes.map((lane) => lane.floor)),
      arrayOf(drops),
      isExact ? null : jobs.length,
    ];
  }
}

/** Each lane once, with the first and the last of its jobs, which are in their order: three arrays. */
function stretches(jobs: readonly ClaimedJob[]): [string, string, string] {
  const ends = new Map<LaneRun, { first: string; last: string }>();
  for (const { lane, pos } of jobs) {
    const stretch = lane && ends.get(lane);
    if (stretch) stretch.last = pos;
    else if (lane) ends.set(lane, { first: pos, last: pos });
  }
  const all = [...ends.values()];
  return [
    arrayOf([...ends.keys()].map((lane) => lane.id)),
    arrayOf(all.map(({ first }) => first)),
    arrayOf(all.map(({ last }) => last)),
  ];
}

const arrayOf = (numbers: readonly string[]): string => `{${numbers.join(',')}}`;
