import { type Database, isPassing, type Queryable } from '../engine/database/database.ts';
import { messageOf } from '../engine/errors.ts';
import { pause } from '../engine/resilience/deadline.ts';
import { Outage } from '../engine/resilience/outage.ts';
import { EventBell } from './bell.ts';

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
  /**
   * What to do about an event that fails by itself, with an error that does not pass, or that alone takes longer than a statement
   * may, twice in a row. `stop` (the default): it comes again and again, and nothing behind it is handled. `set aside`: go on
   * without it, and try it again after a minute, then less and less often; it is then out of order.
   */
  readonly onPoison?: 'stop' | 'set aside';
  /** Work that earlier batches left behind; tried at each look. If it fails, the follower goes on without it. */
  readonly leftovers?: {
    readonly exist: (on: Queryable) => Promise<boolean>;
    readonly handle: (tx: Queryable) => Promise<void>;
  };
  /** How often it looks without being notified. Default 250. */
  readonly pollMs?: number;
  /** Events in one transaction. Default 500. */
  readonly batch?: number;
}

/** The wait after an error, so that a database in trouble does not get a query at every poll. */
const afterErrorMs = 2000;
/** Leftovers that could not be handled are left alone for so long: each try may take as long as a statement may. */
const leftoversAgainMs = 60_000;
/** Events that come one by one share a look: at most so often. */
const shortestPauseMs = 20;

/**
 * Follows the events for one listener, each once, in the order of their ids. Any number of processes may run one for the
 * same listener: the lock on its row lets one of them work at a time.
 *
 *   idle ── start() ──▶ looking ◀── notified, poll, hint() ──┐
 *                          │ nothing there ──▶ waiting ──────┤
 *                          │ a batch ──▶ pause ──────────────┘   the pause is as long as the batch took: it never takes
 *                          └── stop() ──▶ stopped                more than half of the time from those who emit
 */
export class EventFollower {
  readonly #options: EventFollowerOptions;
  readonly #pollMs: number;
  readonly #batch: number;
  readonly #bell: EventBell;
  readonly #outage: Outage;
  /** Smaller for a while after a batch that took too long. */
  #size: number;
  #leftoversAt = 0;
  #stopping = new AbortController();
  #hinted = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: EventFollowerOptions) {
    this.#options = options;
    this.#pollMs = options.pollMs ?? 250;
    this.#batch = options.batch ?? 500;
    this.#size = this.#batch;
    this.#bell = new EventBell(options.database, () => this.hint());
    this.#outage = new Outage(
      options.database.logger,
      { listener: options.listener },
      {
        down: 'a batch of events was not handled; it is tried again',
        up: 'events are handled again',
      },
    );
  }

  /** Why the last batch was not handled; undefined: all is well. */
  get trouble(): string | undefined {
    return this.#outage.reason;
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
    const ringing = this.#bell.start();
    while (!stopping.aborted) {
      this.#hinted = new AbortController();
      const began = performance.now();
      try {
        const didWork = await this.turn();
        this.#outage.up();
        if (didWork) {
          await this.#bell.mute();
          await pause(Math.max(shortestPauseMs, performance.now() - began), stopping);
        } else if (!(await this.#bell.wait())) await pause(this.#pollMs, this.#waitOver(stopping));
      } catch (error) {
        this.#outage.down(messageOf(error));
        await pause(afterErrorMs, stopping);
      }
    }
    await ringing;
    await this.#bell.stop();
  }

  #waitOver(stopping: AbortSignal): AbortSignal {
    return stopping.aborted ? stopping : this.#hinted.signal;
  }

  /** Handles one batch. Returns whether there was one: then there may be more. */
  async turn(): Promise<boolean> {
    const size = this.#size;
    try {
      const didWork = await this.#turn(size, { isCareful: false });
      this.#size = Math.min(this.#batch, size * 2);
      return didWork;
    } catch (error) {
      this.#shrinkAfter(error);
      // A smaller batch may fit. One event cannot be made smaller: is it at fault, or was it slow for once?
      const isAtFault = isTooSlow(error) ? size === 1 : !isPassing(error);
      if (!isAtFault || this.#options.onPoison !== 'set aside') throw error;
    }
    try {
      return await this.#turn(this.#size, { isCareful: true });
    } catch (error) {
      this.#shrinkAfter(error);
      throw error;
    }
  }

  #shrinkAfter(error: unknown): void {
    if (isTooSlow(error)) this.#size = Math.max(1, Math.floor(this.#size / 4));
  }

  async #turn(size: number, { isCareful }: { readonly isCareful: boolean }): Promise<boolean> {
    const { database, listener, handle, leftovers } = this.#options;
    const news = await database.query<{ any: boolean }>('select tallyman_events.has_news($1) as any', [
      listener,
    ]);
    const isLeft = performance.now() >= this.#leftoversAt && (await leftovers?.exist(database)) === true;
    if (!news.rows[0]?.any && !isLeft) return false;
    return database.transaction(async (tx) => {
      const { rows } = await tx.query<{ cursor: string; again: string | null }>(
        `select cursor, tallyman_events.due_again(name) as again
           from tallyman_events.listeners where name = $1 for update skip locked`,
        [listener],
      );
      const [found] = rows;
      if (!found) return false;
      const { cursor: after, again } = found;
      if (isLeft) await this.#handleLeftovers(tx);
      if (again !== null) await this.#tryAgain(tx, again);
      const reached = await tx.query<{ end: string }>('select tallyman_events.reach($1, $2) as end', [
        after,
        size,
      ]);
      const upTo = reached.rows[0]?.end ?? after;
      if (upTo === after) return again !== null;
      if (isCareful) await this.#handleCarefully(tx, { after, upTo });
      else await handle(tx, { after, upTo });
      await tx.query('update tallyman_events.listeners set cursor = $2, moved_at = now() where name = $1', [
        listener,
        upTo,
      ]);
      return true;
    });
  }

  /** Halves a batch that fails until the event that fails is alone, and sets that one aside. */
  async #handleCarefully(tx: Queryable, batch: EventBatch): Promise<void> {
    const { rows } = await tx.query<{ id: string }>(
      'select id from tallyman_events.events where id > $1 and id <= $2 order by id',
      [batch.after, batch.upTo],
    );
    const isAlone = rows.length <= 1;
    const error = await this.#attempt(tx, () => this.#options.handle(tx, batch), { mayBeSlow: isAlone });
    if (error === undefined) return;
    const middle = rows[Math.floor(rows.length / 2) - 1]?.id;
    if (middle === undefined) return this.#setAside(tx, rows[0]?.id ?? batch.upTo, error);
    await this.#handleCarefully(tx, { after: batch.after, upTo: middle });
    await this.#handleCarefully(tx, { after: middle, upTo: batch.upTo });
  }

  async #handleLeftovers(tx: Queryable): Promise<void> {
    const { listener, leftovers, database } = this.#options;
    const error = await this.#attempt(tx, async () => leftovers?.handle(tx), { mayBeSlow: true });
    if (error === undefined) return;
    this.#leftoversAt = performance.now() + leftoversAgainMs;
    database.logger.error(
      { listener, error: messageOf(error) },
      'what earlier events left behind cannot be handled; it is tried again in a minute',
    );
  }

  /**
   * Returns the error of work that fails by its own fault, and undoes it; throws an error that passes. With `mayBeSlow` a
   * statement that takes too long is the work's own fault: the database still answers, or undoing it throws.
   */
  async #attempt(
    tx: Queryable,
    work: () => Promise<void>,
    { mayBeSlow }: { readonly mayBeSlow: boolean },
  ): Promise<unknown> {
    await tx.query('savepoint attempt');
    try {
      await work();
      await tx.query('release savepoint attempt');
      return undefined;
    } catch (error) {
      if (isTooSlow(error) ? !mayBeSlow : isPassing(error)) throw error;
      await tx.query('rollback to savepoint attempt');
      return error ?? new Error('unknown');
    }
  }

  async #tryAgain(tx: Queryable, event: string): Promise<void> {
    const { listener } = this.#options;
    const alone = { after: String(BigInt(event) - 1n), upTo: event };
    const error = await this.#attempt(tx, () => this.#options.handle(tx, alone), { mayBeSlow: true });
    if (error !== undefined) return this.#putAside(tx, event, error);
    await tx.query('delete from tallyman_events.set_aside where listener = $1 and event_id = $2', [
      listener,
      event,
    ]);
  }

  async #setAside(tx: Queryable, event: string, error: unknown): Promise<void> {
    const { listener, database } = this.#options;
    await this.#putAside(tx, event, error);
    const row = `tallyman_events.set_aside where listener = '${listener}' and event_id = ${event}`;
    database.logger.error(
      {
        listener,
        event,
        error: messageOf(error),
        advice: `It is tried again after a minute, then less and less often, until it can be handled. To try it now: update ${row.replace(' where', ' set retry_at = now() where')}; to give it up: delete from ${row};`,
      },
      'an event cannot be handled and was set aside; the others go on',
    );
  }

  async #putAside(tx: Queryable, event: string, error: unknown): Promise<void> {
    await tx.query('select tallyman_events.put_aside($1, $2, $3)', [
      this.#options.listener,
      event,
      messageOf(error),
    ]);
  }
}

/** The statement ran into its time limit: fewer events at a time may fit. */
const isTooSlow = (error: unknown): boolean => (error as { code?: unknown } | null)?.code === '57014';
