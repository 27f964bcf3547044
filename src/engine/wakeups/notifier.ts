import type { Database } from '../database/database.ts';
import { hintSoon } from '../sql/hint.ts';
import type { Wakeup } from './wakeup.ts';

/** `source`: `local`, or the name of the broker it came through. */
export type HintListener = (queue: string | null, source: string) => void;

/**
 * Tells workers that something was committed, at most once every few milliseconds.
 *
 * A NOTIFY makes Postgres serialise the commit that carries it, so a busy producer must not send one in every
 * transaction. One transaction every few milliseconds carries it, also for those before it; a later NOTIFY covers the rest.
 */
export class Notifier {
  readonly #database: Database;
  readonly #wakeups: readonly Wakeup[];
  readonly #gapMs: number;
  readonly #listeners = new Set<HintListener>();
  #lastAt = 0;
  readonly #owed = new Set<string>();
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
   * Whether the transaction about to be sent should carry the notification for these queues. Not where a worker of this
   * process will look at once and nobody else was kept waiting: the others are told right after.
   */
  inTransaction(queues: Iterable<string>): boolean {
    if (this.#listeners.size > 0 && this.#owed.size === 0) return false;
    const now = performance.now();
    if (now - this.#lastAt < this.#gapMs) return false;
    this.#lastAt = now;
    for (const queue of queues) this.#owed.delete(queue);
    return true;
  }

  /** `isCarried`: the transaction carried the notification. */
  committed(queues: Iterable<string>, isCarried = false): void {
    for (const queue of queues) {
      for (const listener of this.#listeners) listener(queue, 'local');
      if (isCarried) this.#publish(queue);
      else this.#owed.add(queue);
    }
    if (this.#owed.size > 0) this.#timer ??= setTimeout(() => this.#settleDebt(), this.#gapMs);
  }

  #settleDebt(): void {
    this.#timer = undefined;
    const queues = [...this.#owed];
    if (queues.length === 0) return;
    this.#owed.clear();
    this.#lastAt = performance.now();
    hintSoon(this.#database, { queues }).catch(() => {});
    for (const queue of queues) this.#publish(queue);
  }

  #publish(queue: string): void {
    for (const wakeup of this.#wakeups) void wakeup.publish({ queue });
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    await Promise.all(this.#wakeups.map((wakeup) => wakeup.stop()));
  }
}
