import { type Database, isConnectionError } from '../database/database.ts';
import { messageOf, TallymanError } from '../errors.ts';
import { exclusively, type Transactor } from '../locks/exclusive.ts';
import { backoffMs } from '../resilience/backoff.ts';
import { pause } from '../resilience/deadline.ts';
import { Outage } from '../resilience/outage.ts';
import type { Retention } from '../retention/retention.ts';
import type { Schedules } from './schedules.ts';

export interface HousekeeperOptions {
  readonly schedules: Schedules;
  readonly retention: Retention;
  /** A schedule that somebody else made is noticed within this time. Default 1000. */
  readonly tickMs?: number;
  /** Default 5 minutes; the first round is at the start. */
  readonly retentionIntervalMs?: number;
  /** How often the other processes try to get the lock. Default 5000. */
  readonly standbyMs?: number;
  /** Only databases that share nothing else need another. */
  readonly lockId?: bigint | number;
}

const housekeepingLock = 0x7411_0002;
const reconnect = { minMs: 200, maxMs: 30_000 };

/**
 * Runs schedules and retention, on one process at a time:
 *
 *   start ──> asking ──lock──> working ──connection lost──> backoff ──> asking
 *               │ ▲
 *              held by another: stand by               stop: from anywhere, at once
 *
 * The lock spares work, it is not what makes a schedule run once: that holds without it (see Schedules). So behind a
 * transaction pooler, where there is no such lock, every process does the work.
 */
export class Housekeeper {
  readonly #database: Database;
  readonly #schedules: Schedules;
  readonly #retention: Retention;
  readonly #tickMs: number;
  readonly #retentionIntervalMs: number;
  readonly #standbyMs: number;
  readonly #lockId: bigint | number;
  readonly #outage: Outage;
  #stopping: AbortController | undefined;
  #running: Promise<void> = Promise.resolve();
  #failures = 0;
  #active = false;

  constructor(database: Database, options: HousekeeperOptions) {
    this.#database = database;
    this.#schedules = options.schedules;
    this.#retention = options.retention;
    this.#tickMs = options.tickMs ?? 1000;
    this.#retentionIntervalMs = options.retentionIntervalMs ?? 300_000;
    this.#standbyMs = options.standbyMs ?? 5000;
    this.#lockId = options.lockId ?? housekeepingLock;
    this.#outage = new Outage(
      database.logger,
      {},
      {
        down: 'schedules and retention are interrupted; trying again',
        up: 'schedules and retention go on',
      },
    );
  }

  /** Whether this process runs schedules and retention now. */
  get active(): boolean {
    return this.#active;
  }

  /** Goes on until stop(); trouble is logged and tried again, never thrown. */
  start(): void {
    if (this.#stopping)
      throw new TallymanError(
        'ALREADY_STARTED',
        'this housekeeper has been started; stop it before starting it again',
      );
    this.#stopping = new AbortController();
    this.#running = this.#run(this.#stopping.signal);
  }

  /** Resolves when the lock is free for another process. */
  async stop(): Promise<void> {
    this.#stopping?.abort();
    await this.#running;
    this.#stopping = undefined;
  }

  async #run(stopped: AbortSignal): Promise<void> {
    while (!stopped.aborted) {
      try {
        if (await this.#once(stopped)) continue;
        this.#recovered();
        await pause(this.#standbyMs, stopped);
      } catch (error) {
        if (stopped.aborted) return;
        this.#outage.down(messageOf(error));
        await pause(backoffMs(this.#failures, reconnect), stopped);
        this.#failures += 1;
      }
    }
  }

  /** Works until the signal fires or something goes wrong; false when another process has the lock. */
  async #once(stopped: AbortSignal): Promise<boolean> {
    try {
      const work = (section: Transactor & { signal: AbortSignal }) => this.#runUntil(section, section.signal);
      // Its steps are small. One that hangs would keep the lock from the rest of the fleet.
      const options = { signal: stopped, statementMs: 60_000 };
      return (await exclusively(this.#database, this.#lockId, work, options)).ran;
    } catch (error) {
      if (!(error instanceof TallymanError) || error.code !== 'TRANSACTION_POOLER') throw error;
      await this.#runUntil(this.#database, stopped);
      return true;
    }
  }

  async #runUntil(on: Transactor, signal: AbortSignal): Promise<void> {
    let retentionAt = 0;
    this.#active = true;
    try {
      while (!signal.aborted) {
        if (performance.now() >= retentionAt) {
          await this.#retain(on, signal);
          retentionAt = performance.now() + this.#retentionIntervalMs;
        }
        const waitMs = await this.#runSchedules(on, signal);
        this.#recovered();
        await pause(waitMs, signal);
      }
    } finally {
      this.#active = false;
    }
  }

  /** What is wrong with retention must not keep schedules from running; a lost connection stops both. */
  async #retain(on: Transactor, signal: AbortSignal): Promise<void> {
    try {
      const report = await this.#retention.run(on, signal);
      this.#database.logger.debug(report, 'retention ran');
    } catch (error) {
      if (signal.aborted || isConnectionError(error)) throw error;
      this.#database.logger.error(
        { reason: messageOf(error) },
        'retention failed; the next round tries again',
      );
    }
  }

  /** Returns how long to wait before looking again. */
  async #runSchedules(on: Transactor, signal: AbortSignal): Promise<number> {
    const dueInMs = await this.#schedules.dueInMs();
    if (dueInMs === undefined || dueInMs > this.#tickMs) return this.#tickMs;
    if (dueInMs > 0) return Math.ceil(dueInMs);
    const runs = await this.#schedules.runDue(on, signal);
    // What is due and did not run cannot run now: wait as if nothing were due.
    return runs.length > 0 ? 0 : this.#tickMs;
  }

  #recovered(): void {
    this.#failures = 0;
    this.#outage.up();
  }
}
