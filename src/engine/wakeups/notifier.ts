import type { Database } from '../database/database.ts';
import type { Wakeup } from './wakeup.ts';

/** `source`: `local`, or the name of the broker it came through. */
export type HintListener = (queue: string | null, source: string) => void;

/**
 * Tells workers that something was committed, at most once every few milliseconds.
 *
 * A NOTIFY makes Postgres serialise the commit that carries it, so a busy producer must not send one in every
 * transaction. The first commit after a quiet moment carries it; those that follow share one afterwards.
 */
export class Notifier {
  readonly #database: Database;
  readonly #wakeups: readonly Wakeup[];
  readonly #gapMs: number;
  readonly #listeners = new Set<HintListener>();
  #lastAt = 0;
  #owed = new Set<string>();
  #timer: NodeJS.Timeout | undefined;

  constructor(database: Database, wakeups: readonly Wakeup[], gapMs = 5) {
    this.#database = database;
    this.#wakeups = wakeups;
    this.#gapMs = gapMs;
  }

  /** Connects to the brokers. One that is away is tried again in the background. */
  async start(): Promise<void> {
    await Promise.all(
      this.#wakeups.map((wakeup) =>
        wakeup.start(({ queue }) => {
          for (const listener of this.#listeners) listener(queue, wakeup.name);
        }),
      ),
    );
  }

  /** Workers of this process hear of its own commits without asking anybody, and of others through the brokers. */
  onHint(listener: HintListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Whether the transaction about to be sent should carry the notification. Not where a worker of this process will
   * look at once: the others are told right after.
   */
  inTransaction(): boolean {
    if (this.#listeners.size > 0) return false;
    const now = performance.now();
    if (now - this.#lastAt < this.#gapMs) return false;
    this.#lastAt = now;
    return true;
  }

  committed(queues: Iterable<string>): void {
    for (const queue of queues) {
      for (const listener of this.#listeners) listener(queue, 'local');
      this.#owed.add(queue);
    }
    this.#timer ??= setTimeout(() => this.#settleDebt(), this.#gapMs);
  }

  #settleDebt(): void {
    this.#timer = undefined;
    const queues = [...this.#owed];
    this.#owed = new Set();
    this.#lastAt = performance.now();
    // A hint that is lost costs one poll interval.
    this.#database.query('select tallyman.hint($1)', [queues]).catch(() => {});
    for (const wakeup of this.#wakeups) for (const queue of queues) void wakeup.publish({ queue });
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    await Promise.all(this.#wakeups.map((wakeup) => wakeup.stop()));
  }
}
