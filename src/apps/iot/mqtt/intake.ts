/**
 * Messages that were received but not committed yet: handed on in batches, one at a time, and acknowledged from the front.
 *
 * With one batch at a time, messages of every device stay in order, and messages that arrive meanwhile share the next
 * commit. A rejected batch is retried in halves, after a pause, so a message that cannot be committed ends up alone. It is
 * then a suspect, and others go first. If another message was committed and the suspect is rejected again right after,
 * the message is the cause and not the database: then it is offered to `deadLetter`. Acknowledgements leave in the order
 * of arrival, as MQTT demands: a finished message waits for unfinished ones before it.
 */
import { messageOf, PermanentError } from '../../../engine/errors.ts';
import type { Logger } from '../../../engine/logger.ts';
import { backoffMs } from '../../../engine/resilience/backoff.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import type { Delivery, MqttMessage } from './message.ts';

/** Resolves when all of them are durable, including those kept as dead letters; rejects when none is. */
export type OnBatch = (messages: readonly MqttMessage[]) => Promise<void>;

/** Stores a message that `onBatch` rejects while it accepts others, or with a PermanentError. Resolves when it is durable: then it is acknowledged. */
export type DeadLetter = (message: MqttMessage, error: unknown) => Promise<void>;

/** Tells how long a commit took, and whether it succeeded. */
export type OnCommit = (commit: {
  readonly messages: number;
  readonly seconds: number;
  readonly committed: boolean;
}) => void;

/** Where messages come from and acknowledgements go. */
export interface Line {
  acknowledge(deliveries: readonly Delivery[]): void;
  pause(): void;
  resume(): void;
}

export interface IntakeOptions {
  readonly handlerOf: (topic: string) => OnBatch;
  readonly deadLetter: DeadLetter | undefined;
  readonly onArrival?: ((message: MqttMessage) => void) | undefined;
  /** How many reads a message holds; called after `onArrival`. Default: 1. */
  readonly readsIn?: ((message: MqttMessage) => number) | undefined;
  readonly onCommit?: OnCommit | undefined;
  readonly maxBatch: number;
  readonly maxBatchBytes: number;
  readonly maxBatchReads: number;
  readonly maxMessages: number;
  readonly maxBytes: number;
  readonly logger: Logger;
  readonly retry?: { readonly minMs: number; readonly maxMs: number };
}

export interface IntakeCounters {
  received: number;
  redelivered: number;
  acknowledged: number;
  batches: number;
  rejected: number;
  deadLettered: number;
  /** Larger than `maxPacketSize`: left out. */
  oversized: number;
}

interface Held extends Delivery {
  readonly onBatch: OnBatch;
  readonly reads: number;
  done: boolean;
  /** How often it was rejected alone. */
  refusals: number;
}

/** A message that was rejected alone this often is a suspect. */
const patience = 3;
const defaultRetry = { minMs: 100, maxMs: 5_000 };

export class Intake {
  readonly counters: IntakeCounters = {
    received: 0,
    redelivered: 0,
    acknowledged: 0,
    batches: 0,
    rejected: 0,
    deadLettered: 0,
    oversized: 0,
  };
  readonly #options: IntakeOptions;
  readonly #retry: { readonly minMs: number; readonly maxMs: number };
  readonly #stopping = new AbortController();
  #line: Line | undefined;
  /** All messages of one connection, in the order of arrival. */
  #queue: Held[] = [];
  #bytes = 0;
  #limit: number;
  #failures = 0;
  /** In a row, of whole batches. */
  #rejectedInARow = 0;
  #running: Promise<void> | undefined;

  constructor(options: IntakeOptions) {
    this.#options = options;
    this.#retry = options.retry ?? defaultRetry;
    this.#limit = options.maxBatch;
  }

  get inFlight(): number {
    return this.#queue.length;
  }

  get bytesInFlight(): number {
    return this.#bytes;
  }

  /** When the oldest message arrived that is not acknowledged yet. */
  get oldestInFlight(): Date | undefined {
    return this.#queue[0]?.message.receivedAt;
  }

  /** Reading from the broker is paused, because too much waits for its commit. */
  get isPaused(): boolean {
    return this.#full;
  }

  /** Commits that failed since the last one that succeeded. */
  get rejectedInARow(): number {
    return this.#rejectedInARow;
  }

  /** A message that is acknowledged when its turn comes, and never handed on. */
  leaveOut(line: Line, delivery: Delivery): void {
    if (this.#stopping.signal.aborted) return;
    if (line !== this.#line) this.forget(line);
    this.counters.oversized += 1;
    this.#queue.push({ ...delivery, onBatch: async () => {}, reads: 0, done: true, refusals: 0 });
    this.#bytes += sizeOf(delivery);
    this.#running ??= this.#run();
  }

  receive(line: Line, delivery: Delivery): void {
    if (this.#stopping.signal.aborted) return;
    if (line !== this.#line) this.forget(line);
    this.counters.received += 1;
    if (delivery.message.duplicate) this.counters.redelivered += 1;
    const { handlerOf, onArrival, readsIn } = this.#options;
    const { message } = delivery;
    onArrival?.(message);
    const reads = readsIn?.(message) ?? 1;
    this.#queue.push({ ...delivery, onBatch: handlerOf(message.topic), reads, done: false, refusals: 0 });
    this.#bytes += sizeOf(delivery);
    if (this.#full) line.pause();
    this.#running ??= this.#run();
  }

  /**
   * The connection is gone, and its messages can no longer be acknowledged: packet ids are valid on one connection only.
   * The broker sends all of them again.
   */
  forget(next?: Line): void {
    this.#line = next;
    this.#queue = [];
    this.#bytes = 0;
  }

  /** Resolves when the current batch is committed and acknowledged. Messages not begun are left to the broker. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  get #full(): boolean {
    return this.#queue.length >= this.#options.maxMessages || this.#bytes >= this.#options.maxBytes;
  }

  async #run(): Promise<void> {
    // Messages that arrive in the same turn of the event loop share the first batch, too.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#queue.length > 0 && !this.#stopping.signal.aborted) {
      const line = this.#line;
      const waiting = this.#queue.filter((held) => !held.done);
      const committed = await this.#hand(this.#next(waiting));
      if (line === this.#line) {
        if (committed)
          for (const held of waiting.filter((held) => this.#isSuspect(held))) await this.#judge(held);
        this.#acknowledgeFront();
      }
      if (!committed) await this.#rest();
    }
    this.#running = undefined;
  }

  #next(waiting: readonly Held[]): Held[] {
    const trusted = waiting.filter((held) => !this.#isSuspect(held));
    if (trusted.length > 0) return this.#head(trusted);
    // If all messages are suspects, the cause is something else.
    for (const held of waiting) held.refusals = 0;
    return this.#head(waiting);
  }

  /** As many from the front as one commit may hold; at least one. */
  #head(waiting: readonly Held[]): Held[] {
    const { maxBatchBytes, maxBatchReads } = this.#options;
    let bytes = 0;
    let reads = 0;
    const end = waiting.slice(0, this.#limit).findIndex((held, i) => {
      bytes += sizeOf(held);
      reads += held.reads;
      return i > 0 && (bytes > maxBatchBytes || reads > maxBatchReads);
    });
    return waiting.slice(0, end < 0 ? this.#limit : end);
  }

  #isSuspect(held: Held): boolean {
    return !held.done && held.refusals >= patience && this.#options.deadLetter !== undefined;
  }

  /** Each handler gets its own messages, in order. True when all handlers committed. */
  async #hand(batch: readonly Held[]): Promise<boolean> {
    const shares = [...Map.groupBy(batch, (held) => held.onBatch).values()];
    const outcomes = await Promise.all(shares.map((share) => this.#commit(share)));
    if (outcomes.includes(false)) return false;
    this.#failures = 0;
    this.#limit = Math.min(this.#options.maxBatch, this.#limit * 2);
    return true;
  }

  async #commit(share: readonly Held[]): Promise<boolean> {
    this.counters.batches += 1;
    const began = performance.now();
    const tell = (committed: boolean): void => {
      this.#rejectedInARow = committed ? 0 : this.#rejectedInARow + 1;
      const seconds = (performance.now() - began) / 1000;
      this.#options.onCommit?.({ messages: share.length, seconds, committed });
    };
    try {
      await share[0]?.onBatch(share.map((held) => held.message));
      tell(true);
    } catch (error) {
      tell(false);
      this.counters.rejected += 1;
      const fields = { messages: share.length, topic: share[0]?.message.topic, reason: messageOf(error) };
      this.#options.logger.warn(
        fields,
        'MQTT messages could not be committed; they are kept and tried again',
      );
      this.#limit = Math.max(1, Math.floor(share.length / 2));
      const [alone, ...others] = share;
      if (alone === undefined || others.length > 0) return false;
      alone.refusals += 1;
      // The handler knows that no retry can succeed.
      return error instanceof PermanentError && (await this.#keepAsDeadLetter(alone, error));
    }
    for (const held of share) held.done = true;
    return true;
  }

  /** Others were committed: one more attempt, and if that fails, too, the message is the cause. */
  async #judge(held: Held): Promise<void> {
    try {
      await held.onBatch([held.message]);
      held.done = true;
    } catch (error) {
      await this.#keepAsDeadLetter(held, error);
    }
  }

  /** True when the message is durable as a dead letter. */
  async #keepAsDeadLetter(held: Held, cause: unknown): Promise<boolean> {
    const { deadLetter, logger } = this.#options;
    if (deadLetter === undefined) return false;
    const { topic } = held.message;
    try {
      await deadLetter(held.message, cause);
    } catch (error) {
      logger.error({ topic, reason: messageOf(error) }, 'an MQTT message could not be kept as a dead letter');
      return false;
    }
    held.done = true;
    this.counters.deadLettered += 1;
    logger.warn({ topic, reason: messageOf(cause) }, 'an MQTT message was kept as a dead letter');
    return true;
  }

  #acknowledgeFront(): void {
    const open = this.#queue.findIndex((held) => !held.done);
    const front = this.#queue.splice(0, open === -1 ? this.#queue.length : open);
    if (front.length === 0) return;
    for (const held of front) this.#bytes -= sizeOf(held);
    this.#line?.acknowledge(front);
    this.counters.acknowledged += front.length;
    if (!this.#full) this.#line?.resume();
  }

  async #rest(): Promise<void> {
    const signal = this.#stopping.signal;
    // While a batch is halved to find the bad message, pauses stay short; for a single message that keeps failing they grow.
    const failures = this.#limit > 1 ? 0 : this.#failures++;
    await pause(backoffMs(failures, this.#retry), signal);
  }
}

const sizeOf = ({ message }: Delivery): number => message.topic.length + message.payload.length;
