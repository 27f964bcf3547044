import { type Database, isConnectionError } from '../database/database.ts';
import { type Claim, type ClaimAnswer, claim, type Isolation } from './claim.ts';
import type { Claimant } from './claim-at-enqueue.ts';
import type { HandBack } from './hand-back.ts';
import { CrashIsolation } from './isolation.ts';
import type { Leases } from './leases.ts';
import type { Prefetch } from './prefetch.ts';
import type { Runner } from './runner.ts';
import { runWithoutJobContext } from './running.ts';
import type { Settler } from './settle.ts';
import type { DecidedOptions } from './worker-options.ts';

/** What the loop needs from the runner. */
export interface ClaimLoopRunner extends Pick<Runner, 'held' | 'quiet' | 'pump'> {
  readonly leases: Pick<Leases, 'heldOf' | 'takeSuspicion'>;
  readonly settler: Pick<Settler, 'flushed' | 'takeDrops'>;
}

export interface ClaimLoopParts {
  readonly database: Pick<Database, 'run'>;
  readonly worker: string;
  readonly options: DecidedOptions;
  readonly runner: ClaimLoopRunner;
  readonly prefetch: Prefetch;
  readonly handBack: Pick<HandBack, 'unknown' | 'unknownClaims'>;
  /** Queues the claimed items. */
  readonly receive: (answer: ClaimAnswer, durationMs: number | undefined) => Promise<void>;
  /** A lease has expired. */
  readonly recover: () => Promise<void>;
  readonly onTrouble: (error: unknown, what: string) => void;
}

/** Claim again when the held jobs fall to this share of the prefetch target: the next claim runs while they run. */
const refillAt = 0.75;

/** The shortest time between two looks below the cursor; longer when a look is costly (see claim in functions/claim.sql). */
const lateGapMs = 20;

/** After a lost answer every poll looks for unknown claims for this long: the statement may still run on the server. */
const searchUnknownMs = 20_000;

/**
 * Decides when to claim, what, and how much.
 *
 *   idle ──▶ claiming ──▶ idle        a hint, a poll, room in the prefetch budget, or the end of an isolated item starts it
 *     │          │
 *     │          └─ goes on while there may be more and there is room for it, or a hint came meanwhile
 *     └─▶ offered ──▶ idle            an enqueue of this process claims for it (`offer`)
 *   stopped                           from any state, when what is under way has come back
 *
 * In each round of `claiming`: what others left behind first (one isolated item, if `CrashIsolation` allows it), then one
 * turn at one stream of ordinary work.
 */
export class ClaimLoop {
  readonly #parts: ClaimLoopParts;
  /** In the order of the next turn: each comes first in its turn. */
  readonly #queues: string[];
  readonly #isolation = new CrashIsolation();
  #state: 'idle' | 'claiming' | 'offered' | 'stopped' = 'idle';
  #underWay: Promise<void> = Promise.resolve();
  #isHinted = false;
  #mayHaveMore = true;
  /** A queue's limit held something back: there is room for it when another item is confirmed. */
  #isLimited = false;
  #lateAfter = 0;
  /** No offers before this: the last one was refused, and would be again. */
  #offerAfter = 0;
  #searchUnknownUntil = 0;
  /** Recent average of jobs per item: 1, or more with lanes. */
  #jobsPerItem = 1;
  /** Resolves when a claim has found less than it asked for, and what is done is confirmed. */
  readonly #caughtUp = Promise.withResolvers<void>();
  #lateTimer: NodeJS.Timeout | undefined;
  #isolationTimer: NodeJS.Timeout | undefined;

  constructor(parts: ClaimLoopParts) {
    this.#parts = parts;
    this.#queues = [...parts.options.queues];
  }

  get caughtUp(): Promise<void> {
    return this.#caughtUp.promise;
  }

  knows(queue: string): boolean {
    return this.#queues.includes(queue);
  }

  /** There may be work. */
  hint(): void {
    this.#isHinted = true;
    this.#claimSoon();
  }

  /** The last claim did not reach the end of the backlog. */
  get mayHaveMore(): boolean {
    return this.#mayHaveMore;
  }

  /** Something was confirmed. */
  confirmed(): void {
    if (this.#isLimited) this.hint();
  }

  /** Something has left the prefetch budget. */
  room(): void {
    const { runner, prefetch } = this.#parts;
    if (this.#mayHaveMore && runner.held <= prefetch.target * refillAt) this.#claimSoon();
  }

  isolatedGone(claim: Claim): void {
    if (this.#isolation.ended(claim.token) && this.#isolation.isActive) this.hint();
  }

  async stop(): Promise<void> {
    clearTimeout(this.#lateTimer);
    clearTimeout(this.#isolationTimer);
    this.#caughtUp.resolve();
    const underWay = this.#underWay;
    this.#state = 'stopped';
    await underWay;
  }

  get #isStopped(): boolean {
    return this.#state === 'stopped';
  }

  /** Called before jobs are committed: an idle worker claims them in that commit. */
  offer(queue: string, kind: string, jobs: number): Claimant | undefined {
    const { options, runner, prefetch, worker } = this.#parts;
    if (this.#state !== 'idle' || !runner.quiet || this.#isolation.isActive) return undefined;
    if (performance.now() < this.#offerAfter) return undefined;
    const room = Math.min(options.limits.get(queue) ?? Number.POSITIVE_INFINITY, prefetch.target);
    if (jobs > room || !this.knows(queue) || !options.kinds.has(kind)) return undefined;
    const { promise, resolve } = Promise.withResolvers<Parameters<Claimant['answer']>[0]>();
    const taken = async (): Promise<void> => {
      const answer = await promise;
      if (answer === 'refused' || answer === 'unknown') {
        this.#offerAfter = performance.now() + options.pollIntervalMs;
        if (answer === 'unknown') this.#answerWasLost();
        return;
      }
      await this.#parts.receive(answer, undefined);
      runner.pump();
    };
    this.#go('offered', runWithoutJobContext(taken));
    return { worker, leaseMs: options.leaseMs, staleMs: options.staleMs, answer: resolve };
  }

  #claimSoon(): void {
    if (this.#state === 'idle')
      this.#go(
        'claiming',
        runWithoutJobContext(() => this.#claimAll()),
      );
  }

  #go(state: 'claiming' | 'offered', work: Promise<void>): void {
    this.#state = state;
    this.#underWay = work
      .catch((error) => {
        if (isConnectionError(error)) this.#answerWasLost();
        this.#parts.onTrouble(error, 'claiming failed; polling goes on');
      })
      .finally(() => {
        if (this.#isStopped) return;
        this.#state = 'idle';
        if (this.#isHinted) this.#claimSoon();
      });
  }

  async #claimAll(): Promise<void> {
    const { handBack, runner } = this.#parts;
    do {
      this.#isHinted = false;
      await this.#searchUnknown();
      await this.#claimIsolated();
      await this.#claimOrdinary();
      await handBack.unknown();
      if (!this.#mayHaveMore) void runner.settler.flushed().then(this.#caughtUp.resolve);
    } while (!this.#isStopped && (this.#mayClaimOn || this.#isHinted));
  }

  /** There may be more, and there is room for it. */
  get #mayClaimOn(): boolean {
    const { runner, prefetch } = this.#parts;
    return !this.#isStopped && this.#mayHaveMore && runner.held <= prefetch.target * refillAt;
  }

  async #claimOrdinary(): Promise<void> {
    const { runner, prefetch, options, receive, recover } = this.#parts;
    const room = Math.floor(prefetch.target - runner.held);
    if (room <= 0 || this.#isStopped) {
      this.#mayHaveMore = true;
      return runner.pump();
    }
    const began = performance.now();
    const late = began >= this.#lateAfter;
    const jobs = Math.min(room, Math.max(options.concurrency, Math.ceil(prefetch.target / 2)));
    const items = Math.max(1, Math.floor(jobs / this.#jobsPerItem));
    const answer = await this.#claim(undefined, late, items);
    const tookMs = performance.now() - began;
    if (late) this.#lateAfter = began + tookMs + Math.max(lateGapMs, tookMs * 20);
    this.#mayHaveMore = answer.more || answer.items.length >= items;
    if (!this.#mayHaveMore && !late) this.#lookAgainLate();
    this.#isolation.found(answer.waiting, performance.now());
    if (answer.waiting.suspect || answer.waiting.alone) this.#lookForIsolated();
    if (answer.items.length > 0) await receive(answer, tookMs);
    this.#jobsPerItem = smoothed(this.#jobsPerItem, answer);
    this.#isLimited = answer.limited || this.#roomOfQueues().some((room) => room <= 0);
    // Send the next claim first: the database works on it while these jobs run.
    if (this.#mayClaimOn) setImmediate(() => runner.pump());
    else runner.pump();
    if (answer.expired) await recover();
  }

  async #claimIsolated(): Promise<void> {
    const { runner, receive } = this.#parts;
    const isolation = this.#isolation.next(performance.now());
    if (!isolation || this.#isStopped) return;
    const began = performance.now();
    const answer = await this.#claim(isolation, true, 1);
    const [claimed] = answer.claims;
    if (!claimed) return this.#isolation.foundNothing(isolation, performance.now());
    this.#isolation.claimed(claimed.token, isolation, performance.now());
    await receive(answer, performance.now() - began);
    runner.pump();
  }

  /** Comes back when the next isolated item may start. */
  #lookForIsolated(): void {
    const now = performance.now();
    if (this.#isolation.next(now)) {
      this.#isHinted = true;
      return;
    }
    clearTimeout(this.#isolationTimer);
    const inMs = this.#isolation.lookAgainIn(now);
    if (inMs !== undefined) this.#isolationTimer = setTimeout(() => this.hint(), inMs);
  }

  async #claim(isolated: Isolation | undefined, late: boolean, items: number): Promise<ClaimAnswer> {
    const { database, worker, options, runner } = this.#parts;
    const queues = this.#queues;
    if (queues.length > 1) queues.push(queues.shift() as string);
    return claim(database, {
      worker,
      queues,
      wants: this.#roomOfQueues(),
      total: items,
      kinds: [...options.kinds.keys()],
      isolated,
      laneJobs: options.laneBatch,
      late,
      leaseMs: options.leaseMs,
      staleMs: options.staleMs,
      drop: runner.settler.takeDrops(),
    });
  }

  /** How many items more may be held of each queue. */
  #roomOfQueues(): number[] {
    const { options, runner } = this.#parts;
    return this.#queues.map((queue) => {
      const limit = options.limits.get(queue);
      return limit === undefined ? 1_000_000 : limit - runner.leases.heldOf(queue);
    });
  }

  /** The last turn did not look below the cursor and found little: look there soon. */
  #lookAgainLate(): void {
    clearTimeout(this.#lateTimer);
    this.#lateTimer = setTimeout(() => this.hint(), Math.max(1, this.#lateAfter - performance.now()));
  }

  // ── claims whose answer was lost ───────────────────────────────────────────────────────────────────────────

  #answerWasLost(): void {
    this.#searchUnknownUntil = performance.now() + searchUnknownMs;
  }

  async #searchUnknown(): Promise<void> {
    const { runner, handBack } = this.#parts;
    if (!runner.leases.takeSuspicion() && performance.now() > this.#searchUnknownUntil) return;
    if (await handBack.unknownClaims()) this.#isHinted = true;
  }
}

function smoothed(jobsPerItem: number, { claims, items }: ClaimAnswer): number {
  if (items.length === 0) return jobsPerItem;
  const jobs = claims.reduce((sum, claim) => sum + claim.jobs.length, 0);
  return jobsPerItem + (Math.max(1, jobs / items.length) - jobsPerItem) / 2;
}
