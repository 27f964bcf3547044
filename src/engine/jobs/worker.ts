import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../database/database.ts';
import { messageOf, TallymanError } from '../errors.ts';
import type { LaneLock } from '../locks/lane-lock.ts';
import type { Notifier } from '../wakeups/notifier.ts';
import { PostgresWakeup } from '../wakeups/postgres.ts';
import { type ClaimAnswer, ClaimedJob, claim, LaneRun } from './claim.ts';
import type { Claimant, Enqueuer } from './enqueue.ts';
import { HandBack } from './hand-back.ts';
import { Heartbeat } from './heartbeat.ts';
import { LaneLocks } from './lane-locks.ts';
import { Patience } from './patience.ts';
import { Prefetch } from './prefetch.ts';
import { recover, registerKinds } from './recover.ts';
import { Runner } from './runner.ts';
import { outside } from './running.ts';
import { type DecidedOptions, decide, type WorkerOptions } from './worker-options.ts';

export interface WorkerParts {
  readonly database: Database;
  readonly enqueuer: Enqueuer;
  readonly notifier: Notifier;
  /** LISTEN, which every worker does unless a pooler makes it impossible. */
  readonly listen: boolean;
  readonly laneLock: LaneLock | undefined;
  /** How long finished jobs are kept; 0 writes no history. */
  readonly keepMs: number;
  /** Called when the worker starts. */
  readonly onStart: () => void;
}

/** Claim again when so much of what may be held is left: the next claim is under way while this part is run. */
const refillAt = 0.75;

/** A worker that starts with a backlog begins to listen after so long at the latest. */
const openUpWithinMs = 1000;

/** Between two looks below the cursor, at least; more when a look is costly (see claim in 0003_claim.sql). */
const lateGapMs = 20;

/**
 * Claims work, runs it, confirms it, and looks after what other workers left behind.
 *
 * Polling finds everything; wake-ups only make it find things sooner. Recovery is part of every worker.
 */
export class Worker {
  readonly id = `${hostname()}-${process.pid}-${randomBytes(6).toString('hex')}`;
  readonly #parts: WorkerParts;
  readonly #options: DecidedOptions;
  /** In the order of the next turn: each comes first in its turn. */
  readonly #queues: string[];
  readonly #runner: Runner;
  readonly #prefetch: Prefetch;
  readonly #patience = new Patience();
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #handBack: HandBack;
  readonly #laneLocks: LaneLocks | undefined;
  #heartbeat: Heartbeat | undefined;
  #listener: PostgresWakeup | undefined;
  #opening: Promise<void> | undefined;
  #unsubscribe: () => void = () => {};
  #state: 'new' | 'running' | 'stopping' | 'stopped' = 'new';
  #claiming: Promise<void> | undefined;
  #hinted = false;
  #mayHaveMore = true;
  /** The limit of a queue kept something back: there is room for it when something else is confirmed. */
  #isLimited = false;
  #lateAfter = 0;
  /** No claims in the commits of others before this: the last one was refused, and would be again. */
  #claimantAfter = 0;
  /** Jobs that came with an item lately: 1, or more where there are lanes. */
  #jobsPerItem = 1;
  /** Resolves when a claim has found less than it asked for, and what is done is confirmed. */
  readonly #caughtUp = Promise.withResolvers<void>();
  #dueTimer: NodeJS.Timeout | undefined;
  #lateTimer: NodeJS.Timeout | undefined;

  constructor(parts: WorkerParts, options: WorkerOptions) {
    this.#parts = parts;
    this.#options = decide(options);
    this.#queues = [...this.#options.queues];
    const { kinds, concurrency } = this.#options;
    this.#prefetch = new Prefetch(concurrency, this.#options.maxPrefetch);
    this.#runner = new Runner({
      database: parts.database,
      enqueuer: parts.enqueuer,
      worker: this.id,
      kinds,
      concurrency,
      keepMs: parts.keepMs,
      prefetch: this.#prefetch,
      onRoom: () => this.#onRoom(),
      onConfirmed: () => {
        if (this.#isLimited) this.#onHint(null);
      },
      onLaneGone: (lane) => this.#laneLocks?.unlock(lane),
    });
    this.#handBack = new HandBack(parts.database, this.id, this.#runner);
    if (parts.laneLock)
      this.#laneLocks = new LaneLocks(parts.laneLock, this.#options.leaseMs, {
        run: (lanes) => {
          this.#runner.take({ claims: [], items: lanes });
          this.#runner.pump();
        },
        release: (lanes) => this.#handBack.release(lanes),
        isRunning: () => this.#state === 'running',
      });
  }

  /** Observers; see `WorkerEvents`. */
  get events() {
    return this.#runner.events;
  }

  /** The names of the kinds it runs. */
  get kinds(): readonly string[] {
    return [...this.#options.kinds.keys()];
  }

  /** Items claimed and not finished. */
  get held(): number {
    return this.#runner.held;
  }

  /** Resolves when it works: with nothing to do, also when it listens; with a backlog, that comes a moment later. */
  async start(): Promise<void> {
    if (this.#state !== 'new')
      throw new TallymanError('BAD_STATE', `the worker is ${this.#state}; make a new one`);
    this.#state = 'running';
    const { database, notifier, enqueuer } = this.#parts;
    // A thread takes a moment to start; a short lease could run out before anybody renews it.
    const hasShortLease = this.#options.leaseMs < 10_000;
    this.#heartbeat = new Heartbeat(
      {
        connection: database.connectionConfig,
        worker: this.id,
        leaseMs: this.#options.leaseMs,
        renewMs: this.#options.renewMs,
        staleMs: this.#options.staleMs,
        blockedMs: this.#options.blockedLimitMs,
        warmUpMs: hasShortLease ? 0 : 1000,
      },
      (tokens, startedAt) => this.#runner.leases.renewed(tokens, startedAt),
      database.logger,
    );
    if (hasShortLease) await this.#heartbeat.ready;
    const unsubscribe = [
      notifier.onHint((queue, source) => this.#onWakeup(queue, source)),
      enqueuer.addWorker((queue, kind, jobs) => this.#claimant(queue, kind, jobs)),
    ];
    this.#unsubscribe = () => {
      for (const end of unsubscribe) end();
    };
    this.#every(this.#options.pollIntervalMs, () => this.#poll());
    this.#every(this.#options.recoverIntervalMs, () => {
      this.#recover().catch((error) => this.#trouble(error, 'looking for expired leases failed'));
    });
    const laneLocks = this.#laneLocks;
    if (laneLocks) this.#every(this.#options.renewMs, () => void laneLocks.renew());
    database.logger.info(
      {
        worker: this.id,
        queues: this.#queues,
        kinds: this.#options.kinds.size,
        concurrency: this.#options.concurrency,
      },
      'worker started',
    );
    this.#parts.onStart();
    this.#onHint(null);
    const isIdle = await Promise.race([this.#caughtUp.promise.then(() => true), sleep(50, false)]);
    this.#opening = isIdle ? this.#openUp() : this.#openUpLater();
    if (isIdle) await this.#opening;
  }

  /** What waits comes first: connections and plans for anything else would only slow it down. */
  async #openUpLater(): Promise<void> {
    await Promise.race([this.#caughtUp.promise, sleep(openUpWithinMs)]);
    while (this.#state === 'running') {
      try {
        return await this.#openUp();
      } catch (error) {
        this.#trouble(error, 'the worker could not make its kinds known; trying again');
        await sleep(this.#options.pollIntervalMs);
      }
    }
  }

  /** From here on it hears of new work, and of cancelled jobs, at once. */
  async #openUp(): Promise<void> {
    const { database, listen } = this.#parts;
    database.keepSpare();
    this.#poll();
    await registerKinds(database, this.#options.kinds.values());
    if (!listen || this.#state !== 'running') return;
    this.#listener = new PostgresWakeup(database, (id) => this.#runner.leases.cancel(id));
    await this.#listener.start((hint) => this.#onWakeup(hint.queue, 'postgres'));
  }

  /**
   * Stops claiming, lets running handlers finish up to `stopTimeoutMs`, hands back the rest without costing an
   * attempt. What was finished is confirmed before this resolves.
   */
  async stop(): Promise<void> {
    if (this.#state !== 'running') return;
    this.#state = 'stopping';
    this.#unsubscribe();
    for (const timer of this.#timers) clearInterval(timer);
    clearTimeout(this.#dueTimer);
    clearTimeout(this.#lateTimer);
    this.#caughtUp.resolve();
    await Promise.allSettled([this.#claiming, this.#opening]);
    await this.#handBack.release(this.#runner.takeWaiting());
    const deadline = Date.now() + this.#options.stopTimeoutMs;
    while (!this.#runner.quiet && Date.now() < deadline) await sleep(5);
    const unfinished = this.#runner.takeRunning();
    await Promise.race([this.#runner.settler.flushed(), sleep(2000)]);
    await this.#handBack.release(unfinished);
    await this.#handBack.drop();
    this.#runner.stop();
    await this.#heartbeat?.stop();
    await this.#listener?.stop();
    this.#state = 'stopped';
    this.#parts.database.logger.info({ worker: this.id, handedBack: unfinished.length }, 'worker stopped');
  }

  // ── when to claim ──────────────────────────────────────────────────────────────────────────────────────────

  #every(ms: number, work: () => void): void {
    const timer = setInterval(work, ms);
    this.#timers.add(timer);
  }

  #onWakeup(queue: string | null, source: string): void {
    if (queue !== null && !this.#queues.includes(queue)) return;
    if (this.events.listenerCount('wakeup') > 0) this.events.emit('wakeup', { source });
    this.#onHint(queue);
  }

  #onHint(queue: string | null): void {
    if (queue !== null && !this.#queues.includes(queue)) return;
    this.#hinted = true;
    this.#claimSoon();
  }

  #onRoom(): void {
    if (this.#state !== 'running') return;
    if (this.#mayHaveMore && this.#runner.held <= this.#prefetch.target * refillAt) this.#claimSoon();
    else if (this.#patience.wanted && this.#runner.quiet) this.#claimSoon();
  }

  #poll(): void {
    this.#onHint(null);
    this.#promote().catch((error) => this.#trouble(error, 'looking for due work failed'));
  }

  /** Puts what has fallen due on its stream; comes back by itself when the next one falls due. */
  async #promote(): Promise<void> {
    const rows = await this.#parts.database.run(
      { name: 'tm_promote', text: 'select promoted, next_due_ms from tallyman.promote($1)' },
      [1000],
    );
    const [promoted, next] = rows[0] ?? [];
    clearTimeout(this.#dueTimer);
    if (
      next !== null &&
      next !== undefined &&
      Number(next) < this.#options.pollIntervalMs &&
      this.#state === 'running'
    )
      this.#dueTimer = setTimeout(() => this.#poll(), Math.max(1, Number(next)));
    if (promoted !== '0') this.#onHint(null);
  }

  #claimSoon(): void {
    if (this.#claiming || this.#state !== 'running') return;
    this.#claimBy(outside(() => this.#claimLoop()));
  }

  /** One claim at a time; who is hinted at meanwhile claims again. */
  #claimBy(work: Promise<void>): void {
    this.#claiming = work
      .catch((error) => this.#trouble(error, 'claiming failed; polling goes on'))
      .finally(() => {
        this.#claiming = undefined;
        if (this.#hinted) this.#claimSoon();
      });
  }

  /** Asked before jobs are committed: a worker with nothing to do claims them in that commit. */
  #claimant(queue: string, kind: string, jobs: number): Claimant | undefined {
    const { leaseMs, staleMs, limits, kinds: known } = this.#options;
    const isIdle =
      this.#state === 'running' && !this.#claiming && this.#runner.quiet && !this.#patience.wanted;
    if (!isIdle || performance.now() < this.#claimantAfter) return undefined;
    const room = Math.min(limits.get(queue) ?? Number.POSITIVE_INFINITY, this.#prefetch.target);
    if (jobs > room || !this.#queues.includes(queue) || !known.has(kind)) return undefined;
    const { promise, resolve } = Promise.withResolvers<ClaimAnswer | undefined>();
    const taken = async (): Promise<void> => {
      const answer = await promise;
      if (answer) {
        await this.#receive(answer, undefined);
        this.#runner.pump();
      } else {
        this.#claimantAfter = performance.now() + this.#options.pollIntervalMs;
      }
    };
    this.#claimBy(outside(taken));
    return { worker: this.id, leaseMs, staleMs, answer: resolve };
  }

  async #claimLoop(): Promise<void> {
    do {
      this.#hinted = false;
      await this.#handBack.strays();
      const alone = this.#patience.decide(this.#runner.quiet, performance.now());
      if (alone === 'wait') return;
      const room = Math.floor(this.#prefetch.target - this.#runner.held);
      if (alone === 'ordinary' && room <= 0) {
        this.#mayHaveMore = true;
        return;
      }
      const began = performance.now();
      const late = began >= this.#lateAfter;
      const jobs = Math.min(room, Math.max(this.#options.concurrency, Math.ceil(this.#prefetch.target / 2)));
      const items = Math.max(1, Math.floor(jobs / this.#jobsPerItem));
      const answer = await this.#claim(alone === 'alone', late, items);
      const tookMs = performance.now() - began;
      if (late) this.#lateAfter = began + tookMs + Math.max(lateGapMs, tookMs * 20);
      this.#mayHaveMore = alone === 'alone' || answer.items.length >= items;
      if (!this.#mayHaveMore && !late) this.#lookAgainLate();
      if (alone === 'alone') this.#patience.answered(answer.items.length > 0);
      else if (answer.aloneWaits) this.#patience.want(performance.now());
      if (answer.items.length > 0) await this.#receive(answer, tookMs);
      this.#isLimited = answer.limited || this.#roomOfQueues().some((room) => room <= 0);
      // The next claim goes out first: the database is at it while these are run.
      if (this.#mayClaimOn) setImmediate(() => this.#runner.pump());
      else this.#runner.pump();
      if (!this.#mayHaveMore) void this.#runner.settler.flushed().then(this.#caughtUp.resolve);
      if (answer.expired) await this.#recover();
      await this.#handBack.unknown();
    } while (this.#mayClaimOn || (this.#hinted && this.#state === 'running'));
  }

  /** There may be more, and there is room for it. */
  get #mayClaimOn(): boolean {
    return (
      this.#state === 'running' && this.#mayHaveMore && this.#runner.held <= this.#prefetch.target * refillAt
    );
  }

  async #claim(alone: boolean, late: boolean, items: number): Promise<ClaimAnswer> {
    const queues = this.#queues;
    if (queues.length > 1) queues.push(queues.shift() as string);
    return claim(this.#parts.database, {
      worker: this.id,
      queues,
      wants: this.#roomOfQueues(),
      total: alone ? 1 : items,
      kinds: [...this.#options.kinds.keys()],
      alone,
      laneJobs: this.#options.laneBatch,
      late,
      leaseMs: this.#options.leaseMs,
      staleMs: this.#options.staleMs,
      drop: this.#runner.settler.takeDrops(),
    });
  }

  /** How many items more may be held of each queue. */
  #roomOfQueues(): number[] {
    const { limits } = this.#options;
    return this.#queues.map((queue) => {
      const limit = limits.get(queue);
      return limit === undefined ? 1_000_000 : limit - this.#runner.leases.heldOf(queue);
    });
  }

  /** The last turn did not look below the cursor and found little: look there soon. */
  #lookAgainLate(): void {
    clearTimeout(this.#lateTimer);
    this.#lateTimer = setTimeout(() => this.#onHint(null), Math.max(1, this.#lateAfter - performance.now()));
  }

  // ── what was claimed ───────────────────────────────────────────────────────────────────────────────────────

  async #receive(answer: ClaimAnswer, durationMs: number | undefined): Promise<void> {
    const jobs = answer.claims.reduce((sum, claim) => sum + claim.jobs.length, 0);
    this.#jobsPerItem += (Math.max(1, jobs / answer.items.length) - this.#jobsPerItem) / 2;
    this.events.emit('claimed', { items: answer.items.length, jobs, durationMs });
    const { claims, items } = answer;
    if (!this.#laneLocks) return this.#runner.take(answer);
    this.#runner.take({ claims, items: items.filter((item) => item instanceof ClaimedJob) });
    // Free jobs do not wait for locks.
    this.#runner.pump();
    await this.#laneLocks.lock(items.filter((item) => item instanceof LaneRun));
  }

  async #recover(): Promise<void> {
    const { database, keepMs } = this.#parts;
    for (const found of await recover(database, this.#options.kinds.values(), keepMs)) {
      this.#hinted = true;
      if (found.freed === 0) continue;
      this.events.emit('recovered', found);
      database.logger.warn(
        { worker: found.worker, items: found.freed, counted: found.counted },
        'took back work from a worker that is gone',
      );
    }
  }

  #trouble(error: unknown, what: string): void {
    this.events.emit('error', error as Error);
    this.#parts.database.logger.warn({ error: messageOf(error), worker: this.id }, what);
  }
}
