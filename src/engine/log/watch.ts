import type { Database } from '../database/database.ts';
import { listen } from '../database/listen.ts';
import { Link, type Session } from '../resilience/link.ts';
import { Outage } from '../resilience/outage.ts';
import { GrowthWaiters, type Waiting } from './waiters.ts';

const channel = 'tallyman_log';
/** Between two notifications of one process: a NOTIFY in each commit would end group commit. */
const notifyEveryMs = 20;

/**
 * Tells readers that a stream has grown: those of the same process at once, those of others by a NOTIFY that is coalesced. Like every
 * wake-up it may be lost, so a reader that waits also polls.
 */
export class LogWatch {
  readonly #database: Database;
  readonly #waiters = new GrowthWaiters();
  readonly #grown = new Set<string>();
  #link: Link<Session> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Call it after the commit. */
  grew(stream: string): void {
    this.#waiters.wake(stream);
    this.#grown.add(stream);
    this.#timer ??= setTimeout(() => this.#notify(), notifyEveryMs);
    this.#timer.unref();
  }

  /** See `GrowthWaiters.await`. */
  await(stream: string, signal: AbortSignal): Waiting {
    this.#listen();
    return this.#waiters.await(stream, signal);
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#waiters.wakeAll();
    await this.#link?.stop();
  }

  #notify(): void {
    this.#timer = undefined;
    const streams = [...this.#grown];
    this.#grown.clear();
    this.#database
      .query('select pg_notify($1, s) from unnest($2::text[]) s', [channel, streams])
      .catch(() => {});
  }

  /** Opens a connection for the first reader that waits. Behind a transaction pooler there is no LISTEN. */
  #listen(): void {
    if (this.#link || !this.#database.prepare) return;
    this.#link = new Link({
      connect: (signal) => this.#session(signal),
      outage: new Outage(
        this.#database.logger,
        {},
        {
          down: 'readers of the log are not told of new entries; polling goes on',
          up: 'readers of the log are told of new entries again',
        },
      ),
      reconnect: { minMs: 200, maxMs: 10_000 },
      connectTimeoutMs: 10_000,
    });
    // It never rejects: a connection that cannot be opened is tried again.
    void this.#link.start();
  }

  async #session(signal: AbortSignal): Promise<Session> {
    const session = await listen(
      this.#database,
      {
        applicationName: 'tallyman log',
        channels: [channel],
        onNotification: ({ payload }) => this.#waiters.wake(payload ?? ''),
      },
      signal,
    );
    // What was notified while nobody listened is unknown.
    this.#waiters.wakeAll();
    return session;
  }
}
