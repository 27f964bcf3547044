import type { Database } from '../database/database.ts';
import { hintSoon } from '../sql/hint.ts';
import type { Hint, Wakeup } from './wakeup.ts';

/** `source`: `local`, or the name of the broker it came through. */
export type HintListener = (queue: string | null, source: string) => void;

/**
 * Tells workers that something was committed, at most once every few milliseconds.
 *
 * A NOTIFY makes Postgres serialise the commit that carries it, so a busy producer must not send one in every
 * transaction. One transaction every few milliseconds carries it, also for those before it; a later NOTIFY covers the rest.
 * Brokers get a message for each queue, at most as often; it names the last job that it stands for.
 */
export class Notifier {
  readonly #database: Database;
  readonly #wakeups: readonly Wakeup[];
  readonly #gapMs: number;
  readonly #listeners = new Set<HintListener>();
  #notifiedAt = Number.NEGATIVE_INFINITY;
  #publishedAt = Number.NEGATIVE_INFINITY;
  /** Queues whose NOTIFY is still to be sent. */
  readonly #owed = new Set<string | null>();
  /** The last hint of each queue that brokers are still to be sent. */
  readonly #unpublished = new Map<string | null, Hint>();
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
    if (now - this.#notifiedAt < this.#gapMs) return false;
    this.#notifiedAt = now;
    for (const queue of queues) this.#owed.delete(queue);
    return true;
  }

  /** `isCarried`: the transaction carried the notification. */
  committed(hints: readonly Hint[], isCarried = false): void {
    for (const hint of hints) {
      for (const listener of this.#listeners) listener(hint.queue, 'local');
      if (!isCarried) this.#owed.add(hint.queue);
      if (this.#wakeups.length > 0) this.#unpublished.set(hint.queue, hint);
    }
    if (isCarried && performance.now() - this.#publishedAt >= this.#gapMs) this.#publish();
    if (this.#owed.size > 0 || this.#unpublished.size > 0)
      this.#timer ??= setTimeout(() => this.#settleDebt(), this.#gapMs);
  }

  #settleDebt(): void {
    this.#timer = undefined;
    this.#publish();
    if (this.#owed.size === 0) return;
    // No queue in particular is written as an empty text.
    const queues = [...this.#owed].map((queue) => queue ?? '');
    this.#owed.clear();
    this.#notifiedAt = performance.now();
    hintSoon(this.#database, { queues }).catch(() => {});
  }

  #publish(): void {
    if (this.#unpublished.size === 0) return;
    this.#publishedAt = performance.now();
    for (const hint of this.#unpublished.values())
      for (const wakeup of this.#wakeups) void wakeup.publish(hint);
    this.#unpublished.clear();
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    await Promise.all(this.#wakeups.map((wakeup) => wakeup.stop()));
  }
}
