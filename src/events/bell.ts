import type { Database } from '../engine/database/database.ts';
import { type ListenSession, listen } from '../engine/database/listen.ts';
import { Link } from '../engine/resilience/link.ts';
import { Outage } from '../engine/resilience/outage.ts';

/**
 * Hears of events as soon as they are committed, from every process: LISTEN on a connection of its own. Emitters notify only
 * while a follower waits (functions/emit.sql, `ring`), so a busy system sends none.
 *
 *   silent ── wait() ──▶ waiting ── mute() ──▶ silent      a lost connection: silent, until it is back and wait() is called
 *
 * Without the connection, and behind a transaction pooler, it stays silent: followers poll.
 *
 * A transaction that emits while all followers are at work notifies nobody. If it commits after they have looked again, the poll
 * finds its events.
 */
export class EventBell {
  readonly #database: Database;
  readonly #link: Link<ListenSession>;
  readonly #onRing: () => void;
  #waiting: ListenSession | undefined;
  #isStarted = false;

  constructor(database: Database, onRing: () => void) {
    this.#database = database;
    this.#onRing = onRing;
    this.#link = new Link({
      connect: (signal) => this.#listen(signal),
      outage: new Outage(
        database.logger,
        {},
        {
          down: 'followers are not notified of events; polling goes on',
          up: 'followers are notified of events again',
        },
      ),
      reconnect: { minMs: 200, maxMs: 10_000 },
      connectTimeoutMs: 10_000,
      // What was committed while nobody listened is unknown.
      onState: (state) => {
        if (state === 'up') onRing();
      },
    });
  }

  async start(): Promise<void> {
    if (this.#isStarted || this.#database.pooler === 'transaction') return;
    this.#isStarted = true;
    await this.#link.start();
  }

  /** From now on emitters notify. False: they do already, or there is no connection. True: look again, one may have just committed. */
  async wait(): Promise<boolean> {
    const { session } = this.#link;
    if (session === undefined || session === this.#waiting) return false;
    try {
      await session.query('select tallyman_events.start_waiting()');
    } catch {
      return false;
    }
    this.#waiting = session;
    return true;
  }

  /** Emitters need not notify: the follower is at work, and looks again when it is done. */
  async mute(): Promise<void> {
    const session = this.#waiting;
    this.#waiting = undefined;
    // A session that is gone has let go of its lock.
    if (session !== undefined && session === this.#link.session)
      await session.query('select tallyman_events.stop_waiting()').catch(() => {});
  }

  async stop(): Promise<void> {
    if (!this.#isStarted) return;
    await this.#link.stop();
    this.#waiting = undefined;
    this.#isStarted = false;
  }

  #listen(signal: AbortSignal): Promise<ListenSession> {
    return listen(
      this.#database,
      {
        applicationName: 'tallyman events',
        channels: ['tallyman_events'],
        onNotification: () => this.#onRing(),
      },
      signal,
    );
  }
}
