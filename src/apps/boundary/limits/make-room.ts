/** Makes room in a stream that has reached its limit: confirmed facts go first, whatever their age; then others, where that is configured. */
import { trimToFit } from '../retention.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import { dropOldest } from './drop.ts';

export interface Targets {
  /** Confirmed facts are trimmed down to this many bytes. */
  readonly trimTo: number;
  /** If there are still as many bytes as `from` then, any facts are dropped down to `to`. Undefined: none. */
  readonly drop: { readonly from: number; readonly to: number } | undefined;
}

export interface Made {
  readonly trimmed: number;
  readonly dropped: number;
}

/**
 * Makes room in the background, one step after another, until the targets are reached, nothing more may go, it is stopped, or a step
 * fails. Several processes that do it at once do no harm.
 */
export class RoomMaking {
  readonly #store: FactStore;
  readonly #stream: StreamId;
  readonly #targets: Targets;
  /** Rejects if a step failed. */
  readonly done: Promise<Made>;
  #step: Promise<boolean>;
  #isRunning = true;
  #isDropping = false;
  #stopped = false;
  #trimmed = 0;
  #dropped = 0;

  constructor(store: FactStore, stream: StreamId, targets: Targets) {
    this.#store = store;
    this.#stream = stream;
    this.#targets = targets;
    this.#step = this.#take();
    this.done = this.#run();
    this.done.catch(() => {});
  }

  /** The step under way. Rejects if it fails. */
  get step(): Promise<boolean> {
    return this.#step;
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** What it has done so far. */
  get made(): Made {
    return { trimmed: this.#trimmed, dropped: this.#dropped };
  }

  /** Ends after the step under way. */
  stop(): void {
    this.#stopped = true;
  }

  async #run(): Promise<Made> {
    try {
      while ((await this.#step) && !this.#stopped) this.#step = this.#take();
      return this.made;
    } finally {
      this.#isRunning = false;
    }
  }

  /** Whether there is another one. */
  async #take(): Promise<boolean> {
    const { trimTo, drop } = this.#targets;
    const { trimmed, isMore } = await trimToFit(this.#store, this.#stream, trimTo);
    this.#trimmed += trimmed;
    if (isMore || !drop) return isMore;
    this.#isDropping ||= ((await this.#store.state(this.#stream))?.bytes ?? 0) >= drop.from;
    if (!this.#isDropping) return false;
    const oldest = await dropOldest(this.#store, this.#stream, drop.to);
    this.#dropped += oldest.dropped;
    return oldest.isMore;
  }
}
