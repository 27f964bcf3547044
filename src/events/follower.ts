import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Queryable } from '../engine/database/database.ts';
import { messageOf } from '../engine/errors.ts';

/** The events of all tenants with `after < position <= upTo`: complete, and not handled before. */
export interface EventBatch {
  readonly after: string;
  readonly upTo: string;
}

export interface EventFollowerOptions {
  readonly database: Database;
  /** A listener that `tallyman_events.listen` has created. */
  readonly listener: string;
  /** Runs in the transaction that moves the cursor. If it fails, the batch comes again. */
  readonly handle: (tx: Queryable, batch: EventBatch) => Promise<void>;
  /** Default 250. */
  readonly pollMs?: number;
  /** Events in one transaction. Default 500. */
  readonly batch?: number;
}

/** The wait after an error, so that a database in trouble does not get a query at every poll. */
const afterErrorMs = 2000;
const shortestPauseMs = 5;

/**
 * Follows the events for one listener, each once, in the order of their ids. Any number of processes may run one for the
 * same listener: the lock on its row lets one of them work at a time.
 *
 *   idle ── start() ──▶ looking ◀── poll, hint() ──┐
 *                          │ nothing there ────────┤
 *                          │ a batch ──▶ pause ────┘      the pause is as long as the batch took: it never takes more
 *                          └── stop() ──▶ stopped         than half of the time from those who emit
 */
export class EventFollower {
  readonly #options: EventFollowerOptions;
  readonly #pollMs: number;
  readonly #batch: number;
  #stopping = new AbortController();
  #hinted = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: EventFollowerOptions) {
    this.#options = options;
    this.#pollMs = options.pollMs ?? 250;
    this.#batch = options.batch ?? 500;
  }

  /** Does nothing if it is running already. */
  start(): void {
    if (this.#running) return;
    this.#stopping = new AbortController();
    this.#running = this.#run(this.#stopping.signal);
  }

  /** There may be an event: look now instead of at the next poll. */
  hint(): void {
    this.#hinted.abort();
  }

  /** Finishes the current batch first. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#hinted.abort();
    await this.#running;
    this.#running = undefined;
  }

  async #run(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      this.#hinted = new AbortController();
      const began = performance.now();
      let waitMs = this.#pollMs;
      try {
        if (await this.turn()) waitMs = 0;
      } catch (error) {
        waitMs = afterErrorMs;
        this.#options.database.logger.warn(
          { listener: this.#options.listener, error: messageOf(error) },
          'a batch of events was not handled; it is tried again',
        );
      }
      await pause(Math.max(shortestPauseMs, performance.now() - began), stopping);
      if (waitMs > 0) await pause(waitMs, this.#hinted.signal);
    }
  }

  /** Handles one batch. Returns whether there was one: then there may be more. */
  async turn(): Promise<boolean> {
    const { database, listener, handle } = this.#options;
    const news = await database.query<{ any: boolean }>('select tallyman_events.has_news($1) as any', [
      listener,
    ]);
    if (!news.rows[0]?.any) return false;
    return database.transaction(async (tx) => {
      const { rows } = await tx.query<{ cursor: string }>(
        'select cursor from tallyman_events.listeners where name = $1 for update skip locked',
        [listener],
      );
      const after = rows[0]?.cursor;
      if (after === undefined) return false;
      const reached = await tx.query<{ end: string }>('select tallyman_events.reach($1, $2) as end', [
        after,
        this.#batch,
      ]);
      const upTo = reached.rows[0]?.end ?? after;
      if (upTo === after) return false;
      await handle(tx, { after, upTo });
      await tx.query('update tallyman_events.listeners set cursor = $2, moved_at = now() where name = $1', [
        listener,
        upTo,
      ]);
      return true;
    });
  }
}

/** Ends early when the signal fires. */
const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  sleep(ms, undefined, { signal, ref: false }).catch(() => {});
