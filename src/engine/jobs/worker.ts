import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import type { Database } from '../database/database.ts';
import { prepareTenants } from '../database/tenant.ts';
import { messageOf, TallymanError } from '../errors.ts';
import type { LaneLock } from '../locks/lane-lock.ts';
import { endsWithin, pause } from '../resilience/deadline.ts';
import { present } from '../sql/present.ts';
import type { Notifier } from '../wakeups/notifier.ts';
import { PostgresWakeup } from '../wakeups/postgres.ts';
import { type ClaimAnswer, ClaimedJob, LaneRun } from './claim.ts';
import { ClaimLoop } from './claim-loop.ts';
import type { Enqueuer } from './enqueue.ts';
import { HandBack } from './hand-back.ts';
import { Heartbeat } from './heartbeat.ts';
import { LaneLocks } from './lane-locks.ts';
import { Prefetch } from './prefetch.ts';
import { makeRounds, recover, registerKinds } from './recover.ts';
import { Runner } from './runner.ts';
import { refreshStatistics } from './statistics.ts';
import { type DecidedOptions, decide, type WorkerOptions } from './worker-options.ts';

export interface WorkerParts {
  readonly database: Database;
  readonly enqueuer: Enqueuer;
  readonly notifier: Notifier;
  /** A connection is a session: LISTEN and presence work. Not so behind a transaction pooler. */
  readonly hasSessions: boolean;
  readonly laneLock: LaneLock | undefined;
  /** How long finished jobs are kept; 0 writes no history. */
  readonly keepMs: number;
  /** Throws where the Tallyman of the worker was closed. */
  readonly requireOpen: () => void;
  /** Called when the worker starts. */
  readonly onStart: () => void;
}

/** A worker that starts with a backlog begins to listen after this time at the latest. */
const openUpWithinMs = 1000;

/**
 * Claims work, runs it, confirms it, and takes over what other workers left behind.
 *
 *   new ──start()──▶ running ──stop()──▶ stopping ──▶ stopped
 *
 *   new       nothing is claimed, the database does not know it
 *   running   present in the database; `ClaimLoop` claims, `Runner` runs, `Settler` confirms, the heartbeat renews.
 *             With a backlog it starts on that first; it listens and registers its kinds once it has caught up, or
 *             after a second
 *   stopping  claims no more; running handlers may finish until `stopTimeoutMs`, the rest is handed back
 *   stopped   holds nothing, and has signed off
 *
 * Polling finds everything; wake-ups only make it find things sooner. Recovery is part of every worker.
 */
export class Worker {
  readonly id = `${hostname()}-${process.pid}-${randomBytes(6).toString('hex')}`;
  readonly #parts: WorkerParts;
  readonly #options: DecidedOptions;
  readonly #runner: Runner;
  readonly #claims: ClaimLoop;
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #handBack: HandBack;
  readonly #laneLocks: LaneLocks | undefined;
  #heartbeat: Heartbeat | undefined;
  #listener: PostgresWakeup | undefined;
  #opening: Promise<void> | undefined;
  #unsubscribe: () => void = () => {};
  #state: 'new' | 'running' | 'stopping' | 'stopped' = 'new';
  #roundsTimer: NodeJS.Timeout | undefined;
  #isSigningOn = false;
  #isAnalyzing = false;

  constructor(parts: WorkerParts, options: WorkerOptions) {
    this.#parts = parts;
    this.#options = decide(options);
    const { database } = parts;
    const { kinds, concurrency, laneBatch, leaseMs } = this.#options;
    const prefetch = new Prefetch(concurrency, this.#options.maxPrefetch);
    this.#runner = new Runner({
      database,
      enqueuer: parts.enqueuer,
      worker: this.id,
      kinds,
      concurrency,
      laneBatch,
      leaseMs,
      keepMs: parts.keepMs,
      prefetch,
      othersMayWait: () => this.#claims.mayHaveMore,
      onRoom: () => this.#claims.room(),
      onWork: () => this.#claims.hint(),
      onConfirmed: () => this.#claims.confirmed(),
      lockLane: parts.laneLock && ((lane) => void this.#laneLocks?.lock([lane])),
      onLaneGone: (lane) => this.#laneLocks?.unlock(lane),
      onIsolatedGone: (claim) => this.#claims.isolatedGone(claim),
    });
    this.#handBack = new HandBack(database, this.id, this.#runner);
    this.#claims = new ClaimLoop({
      database,
      worker: this.id,
      options: this.#options,
      runner: this.#runner,
      prefetch,
      handBack: this.#handBack,
      receive: (answer, durationMs) => this.#receive(answer, durationMs),
      recover: () => this.#recover([]),
      onTrouble: (error, what) => this.#trouble(error, what),
    });
    if (parts.laneLock)
      this.#laneLocks = new LaneLocks(parts.laneLock, leaseMs, {
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

  /** How much it holds that is not finished; a lane counts for what it runs soon. */
  get held(): number {
    return this.#runner.held;
  }

  /** Resolves when it works. An idle worker also listens by then; one with a backlog begins to listen a moment later. */
  async start(): Promise<void> {
    this.#parts.requireOpen();
    if (this.#state !== 'new')
      throw new TallymanError('BAD_STATE', `the worker is ${this.#state}; make a new one`);
    const { database, notifier, enqueuer } = this.#parts;
    this.#state = 'running';
    if ([...this.#options.kinds.values()].some(({ scope }) => scope === 'tenant'))
      await this.#prepareTenants();
    // It was stopped meanwhile.
    if (this.#state !== 'running') return;
    const signedOn = this.#beAlive();
    // A thread takes a moment to start; a short lease could expire before its first renewal.
    if (this.#hasShortLease) await this.#heartbeat?.ready;
    // Before the first claim: the work of a worker that dies unknown waits for its lease.
    await signedOn;
    if (this.#state !== 'running') return;
    const unsubscribe = [
      notifier.onHint((queue, source) => this.#onWakeup(queue, source)),
      enqueuer.addWorker((queue, kind, jobs) => this.#claims.offer(queue, kind, jobs)),
    ];
    this.#unsubscribe = () => {
      for (const end of unsubscribe) end();
    };
    this.#every(this.#options.pollIntervalMs, () => this.#poll());
    this.#every(this.#options.recoverIntervalMs, () => {
      this.#recover([]).catch((error) => this.#trouble(error, 'looking for expired leases failed'));
    });
    const laneLocks = this.#laneLocks;
    if (laneLocks) this.#every(this.#options.renewMs, () => void laneLocks.renew());
    database.logger.info(
      {
        worker: this.id,
        queues: this.#options.queues,
        kinds: this.#options.kinds.size,
        concurrency: this.#options.concurrency,
      },
      'worker started',
    );
    this.#parts.onStart();
    this.#claims.hint();
    const isIdle = await endsWithin(this.#claims.caughtUp, 50);
    this.#opening = isIdle ? this.#openUp() : this.#openUpLater();
    if (isIdle) await this.#opening;
  }

  /** Before anything is claimed: without the role every job of such a kind would fail. */
  async #prepareTenants(): Promise<void> {
    try {
      await prepareTenants(this.#parts.database);
    } catch (error) {
      this.#state = 'new';
      throw error;
    }
  }

  get #hasShortLease(): boolean {
    return this.#options.leaseMs < 10_000;
  }

  /**
   * A lock that one of its sessions holds shows others that it is alive. At first that is a connection of the pool,
   * because the heartbeat takes a second to connect and the worker may die before.
   */
  #beAlive(): Promise<void> {
    const { database, hasSessions } = this.#parts;
    const { leaseMs, renewMs, staleMs, blockedLimitMs } = this.#options;
    this.#heartbeat = new Heartbeat(
      {
        connection: database.connectionConfig,
        worker: this.id,
        leaseMs,
        renewMs,
        staleMs,
        blockedMs: blockedLimitMs,
        warmUpMs: this.#hasShortLease ? 0 : 1000,
        isPresent: hasSessions,
      },
      (tokens, startedAt) => this.#runner.leases.renewed(tokens, startedAt),
      database.logger,
    );
    if (!hasSessions) return Promise.resolve();
    const signOn = (): Promise<void> => this.#signOn();
    const signedOn = signOn();
    // A failed statement can cost the pool its connection. If that one held the lock, take the lock again.
    database.pool.on('remove', signOn);
    void this.#heartbeat.ready.then(() => database.pool.off('remove', signOn));
    return signedOn;
  }

  async #signOn(): Promise<void> {
    if (this.#isSigningOn || this.#state !== 'running') return;
    this.#isSigningOn = true;
    try {
      await present(this.#parts.database, { worker: this.id });
    } catch (error) {
      this.#trouble(error, 'the worker could not sign on; its heartbeat tries again');
    } finally {
      this.#isSigningOn = false;
    }
  }

  /** The backlog comes first: other connections and plans would only slow it down. */
  async #openUpLater(): Promise<void> {
    await endsWithin(this.#claims.caughtUp, openUpWithinMs);
    while (this.#state === 'running') {
      try {
        return await this.#openUp();
      } catch (error) {
        this.#trouble(error, 'the worker could not register its kinds; trying again');
        await pause(this.#options.pollIntervalMs);
      }
    }
  }

  /** From here on it gets notifications of new work and of cancelled jobs at once. */
  async #openUp(): Promise<void> {
    const { database, hasSessions } = this.#parts;
    database.keepHotConnection();
    this.#poll();
    await registerKinds(database, this.#options.kinds.values());
    if (!hasSessions || this.#state !== 'running') return;
    this.#listener = new PostgresWakeup(database, (id, pos) => this.#runner.leases.cancel(id, pos));
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
    clearTimeout(this.#roundsTimer);
    await Promise.allSettled([this.#claims.stop(), this.#opening]);
    await this.#handBack.release(this.#runner.takeWaiting());
    const deadline = Date.now() + this.#options.stopTimeoutMs;
    while (!this.#runner.quiet && Date.now() < deadline) {
      await pause(5);
      await this.#handBack.release(this.#runner.takeWaiting());
    }
    const unfinished = this.#runner.takeRunning();
    await endsWithin(this.#runner.settler.flushed(), 2000);
    await this.#handBack.release(unfinished);
    this.#runner.stop();
    await this.#heartbeat?.stop();
    await this.#listener?.stop();
    await this.#handBack.leave();
    this.#state = 'stopped';
    this.#parts.database.logger.info({ worker: this.id, handedBack: unfinished.length }, 'worker stopped');
  }

  // ── when it looks for work ─────────────────────────────────────────────────────────────────────────────────────

  #every(ms: number, work: () => void): void {
    this.#timers.add(setInterval(work, ms));
  }

  #onWakeup(queue: string | null, source: string): void {
    if (queue !== null && !this.#claims.knows(queue)) return;
    if (this.events.listenerCount('wakeup') > 0) this.events.emit('wakeup', { source });
    this.#claims.hint();
  }

  #poll(): void {
    if (this.#claims.mayHaveMore && !this.#isAnalyzing) this.#refreshStatistics();
    this.#claims.hint();
    this.#makeRounds().catch((error) => this.#trouble(error, 'looking for due work failed'));
  }

  #refreshStatistics(): void {
    this.#isAnalyzing = true;
    refreshStatistics(this.#parts.database)
      .catch((error) =>
        this.#trouble(error, 'analyzing the tables of the engine failed; autovacuum does it later'),
      )
      .finally(() => {
        this.#isAnalyzing = false;
      });
  }

  /** Schedules itself again for when the next job falls due, or when a missing worker's grace period ends. */
  async #makeRounds(): Promise<void> {
    const { promoted, nextDueMs, gone, lookAgainMs, hasExpired } = await makeRounds(this.#parts.database);
    if (this.#state !== 'running') return;
    clearTimeout(this.#roundsTimer);
    const next = Math.min(nextDueMs ?? Number.POSITIVE_INFINITY, lookAgainMs ?? Number.POSITIVE_INFINITY);
    if (next < this.#options.pollIntervalMs)
      this.#roundsTimer = setTimeout(() => this.#poll(), Math.max(1, next + 1));
    if (promoted > 0) this.#claims.hint();
    if (gone.length > 0 || hasExpired) await this.#recover(gone);
  }

  async #recover(gone: readonly string[]): Promise<void> {
    const { database, keepMs } = this.#parts;
    for (const found of await recover(database, gone, this.#options.kinds.values(), keepMs)) {
      this.#claims.hint();
      this.events.emit('recovered', found);
      database.logger.warn(
        { worker: found.worker, items: found.freed, charged: found.counted },
        'took over work from a worker that is gone',
      );
      if (found.isDead)
        database.logger.error(
          { job: found.counted },
          'a job killed its worker at its last attempt and is a dead letter (tallyman dead-letters show)',
        );
    }
  }

  // ── what was claimed ───────────────────────────────────────────────────────────────────────────────────────

  async #receive(answer: ClaimAnswer, durationMs: number | undefined): Promise<void> {
    const jobs = answer.claims.reduce((sum, claim) => sum + claim.jobs.length, 0);
    this.events.emit('claimed', { items: answer.items.length, jobs, durationMs });
    const { claims, items } = answer;
    if (!this.#laneLocks) return this.#runner.take(answer);
    this.#runner.take({ claims, items: items.filter((item) => item instanceof ClaimedJob) });
    // Free jobs do not wait for locks.
    this.#runner.pump();
    await this.#laneLocks.lock(items.filter((item) => item instanceof LaneRun));
  }

  #trouble(error: unknown, what: string): void {
    this.events.emit('error', error as Error);
    this.#parts.database.logger.warn({ error: messageOf(error), worker: this.id }, what);
  }
}
