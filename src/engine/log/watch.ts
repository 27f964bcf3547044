import type { Database } from '../database/database.ts';
import { listen } from '../database/listen.ts';
import { Link, type Session } from '../resilience/link.ts';
import { Outage } from '../resilience/outage.ts';

const channel = 'tallyman_log';
/** Between two notifications of one process: a NOTIFY in each commit would end group commit. */
const notifyEveryMs = 20;
/** Readers look again after this time, whether they were woken or not. */
const pollMs = 1000;

/**
 * Tells readers that a stream has grown: those of the same process at once, those of others by a NOTIFY that is coalesced. Like every
 * wake-up it may be lost, so a reader that waits also polls.
 */
export class LogWatch {
  readonly #database: Database;
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #grown = new Set<string>();
  #link: Link<Session> | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Call it after the commit. */
  grew(stream: string): void {
    this.#wake(stream);
    this.#grown.add(stream);
    this.#timer ??= setTimeout(() => this.#notify(), notifyEveryMs);
    this.#timer.unref();
  }

  /**
   * Begins to wait for growth, from the moment of the call. `grown` resolves when the stream may have grown, after a poll
   * interval at the latest, or when the signal fires; `end` gives up.
   */
  await(stream: string, signal: AbortSignal): { readonly grown: Promise<void>; readonly end: () => void } {
    const { promise: grown, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(stream) ?? new Set();
    this.#waiting.set(stream, waiting);
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      waiting.delete(end);
      if (waiting.size === 0 && this.#waiting.get(stream) === waiting) this.#waiting.delete(stream);
      resolve();
    };
    waiting.add(end);
    const timer = setTimeout(end, pollMs);
    signal.addEventListener('abort', end, { once: true });
    this.#listen();
    return { grown, end };
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#wakeAll();
    await this.#link?.stop();
  }

  #wake(stream: string): void {
    for (const end of [...(this.#waiting.get(stream) ?? [])]) end();
  }

  #wakeAll(): void {
    for (const stream of [...this.#waiting.keys()]) this.#wake(stream);
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
        onNotification: ({ payload }) => this.#wake(payload ?? ''),
      },
      signal,
    );
    // What was notified while nobody listened is unknown.
    this.#wakeAll();
    return session;
  }
}
