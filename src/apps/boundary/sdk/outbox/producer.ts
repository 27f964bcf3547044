import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { messageOf, TallymanError } from '../../../../engine/errors.ts';
import { consoleLogger, type Logger } from '../../../../engine/logger.ts';
import type { BackoffLimits } from '../../../../engine/resilience/backoff.ts';
import { orAborted } from '../../../../engine/resilience/deadline.ts';
import { requireBucket, requireObjectKey } from '../../domain/object-reference.ts';
import { slugOf } from '../../domain/zones.ts';
import { Connection, type ConnectionOptions, type TlsOptions } from '../connection.ts';
import { type AppendedFact, referenceTo } from '../direct.ts';
import { type Attachment, type ProducerFact, prepareFact } from '../fact.ts';
import type { MessageIdRule } from '../message-id.ts';
import type { StoredObject } from '../objects.ts';
import { type NewFact, OutboxFile, type ParkedFact, type WaitingFact } from './file.ts';
import { Lane, type LaneMode, type Settled } from './lane.ts';
import { StagedObjects } from './staged-objects.ts';

export interface OutboxProducerOptions extends ConnectionOptions {
  /** The zone of this producer. */
  readonly fromZone: string;
  /** The path of the outbox, on a disk of this machine. Made if it is not there. One process has it at a time. */
  readonly outbox: string;
  /** What facts and attachments may take there. Default 1 GiB. */
  readonly maxBytes?: number;
  /** For facts that come without an id. */
  readonly messageId?: MessageIdRule;
  /** How long to wait after a call that did not succeed. Default: from 100 ms, doubling, to 30 s. Nothing is given up. */
  readonly retry?: Partial<BackoffLimits>;
  /** Hears of each fact that the node has taken. */
  readonly onDelivered?: (fact: DeliveredFact) => void;
  /** Hears of each fact that the node has refused for what it is. */
  readonly onParked?: (fact: Omit<ParkedFact, 'parkedAt'>) => void;
  /** Default: warnings and errors on standard error. */
  readonly logger?: Logger;
}

export type DeliveredFact = WaitingFact & AppendedFact;

export interface AcceptedFact {
  readonly messageId: string;
  /** False: it is in the outbox already, with the same content. */
  readonly isNew: boolean;
}

export interface OutboxState {
  readonly bytes: number;
  readonly maxBytes: number;
  readonly parked: number;
  /** By zone that facts go to. */
  readonly lanes: readonly {
    readonly toZone: string;
    readonly mode: LaneMode;
    readonly waiting: number;
    /** Why facts do not leave. */
    readonly trouble: string | undefined;
  }[];
}

const defaultMaxBytes = 1024 ** 3;

interface Pending {
  readonly fact: NewFact;
  readonly resolve: (isNew: boolean) => void;
  readonly reject: (error: unknown) => void;
}

interface Flush {
  readonly upTo: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/**
 * A producer that loses nothing: a fact is first written to a file of its own, and goes from there to the node, in order, as
 * soon and as often as it takes. Appends of one turn of the event loop share a commit; facts that gather while a call is
 * under way share the next one.
 *
 * @example
 * const producer = await OutboxProducer.open({ url, tls, fromZone: 'plant-a', outbox: '/var/lib/mes/outbox.db' });
 * await producer.append({ messageId: messageId('WO-1', 'done'), toZone: 'enterprise', subject: 'work_order:WO-1', … });
 */
export class OutboxProducer {
  readonly #options: OutboxProducerOptions;
  readonly #logger: Logger;
  readonly #file: OutboxFile;
  readonly #objects: StagedObjects;
  readonly #connection: Connection;
  readonly #lanes = new Map<string, Lane>();
  #pending: Pending[] = [];
  #flushes: Flush[] = [];
  #closing: Promise<void> | undefined;

  static async open(options: OutboxProducerOptions): Promise<OutboxProducer> {
    const { outbox, fromZone, maxBytes = defaultMaxBytes } = options;
    const connection = new Connection(options);
    await mkdir(dirname(outbox), { recursive: true });
    const file = await OutboxFile.open({ path: outbox, fromZone: slugOf(fromZone), maxBytes });
    try {
      const objects = await StagedObjects.open(`${outbox}-objects`, (digest) => file.needsObject(digest));
      return new OutboxProducer(options, file, objects, connection);
    } catch (error) {
      file.close();
      throw error;
    }
  }

  private constructor(
    options: OutboxProducerOptions,
    file: OutboxFile,
    objects: StagedObjects,
    connection: Connection,
  ) {
    this.#options = options;
    this.#logger = options.logger ?? consoleLogger;
    this.#file = file;
    this.#objects = objects;
    this.#connection = connection;
    // What an earlier process has left goes first.
    for (const toZone of file.zones()) this.#lane(toZone);
  }

  /**
   * Resolves when the fact, and its attachment, are durable in the outbox: from then on it reaches the node, whatever happens to
   * this process. Rejects if the fact is not well-formed (INVALID_ARGUMENT), if its id is in the outbox with other content
   * (`conflicting_duplicate`), or if the outbox is full (`outbox_full`).
   *
   * Facts to one zone reach the node in the order in which the outbox has taken them: that of the calls, but for
   * attachments, whose bytes are written first.
   */
  async append(fact: ProducerFact): Promise<AcceptedFact> {
    this.#requireOpen();
    const { fromZone, messageId: rule } = this.#options;
    const object = fact.attachment && (await this.#stage(fact.attachment));
    try {
      const stored = fact.attachment && object && referenceOf(fact.attachment, object);
      const prepared = prepareFact(fact, { fromZone, rule, stored });
      this.#requireOpen();
      const isNew = await this.#add({ ...prepared, object });
      return { messageId: prepared.input.messageId, isNew };
    } finally {
      if (object) {
        this.#objects.unpin(object.digest);
        this.#release(object);
      }
    }
  }

  /**
   * Resolves when everything that is in the outbox now has been delivered or parked. While the node cannot be reached it
   * waits; give it a signal to wait no longer.
   */
  async flush(signal?: AbortSignal): Promise<void> {
    this.#requireOpen();
    // Those of this turn are on their way into the file.
    await new Promise<void>((resolve) => setImmediate(resolve));
    this.#requireOpen();
    const flushed = new Promise<void>((resolve, reject) => {
      this.#flushes.push({ upTo: this.#file.last(), resolve, reject });
    });
    this.#endFlushes();
    await (signal ? orAborted(flushed, signal) : flushed);
  }

  state(): OutboxState {
    this.#requireOpen();
    return {
      bytes: this.#file.bytes,
      maxBytes: this.#options.maxBytes ?? defaultMaxBytes,
      parked: this.#file.parkedCount(),
      lanes: [...this.#lanes.values()].map(({ toZone, mode, trouble }) => ({
        toZone,
        mode,
        waiting: this.#file.waitingCount(toZone),
        trouble,
      })),
    };
  }

  /** Facts that the node has refused for what they are, in order; the next page begins after the last `seq`. */
  listParked({
    after = 0,
    limit = 100,
  }: {
    readonly after?: number;
    readonly limit?: number;
  } = {}): ParkedFact[] {
    this.#requireOpen();
    return this.#file.parked({ after, limit });
  }

  /** Sends a parked fact again, or all of them, before what waits behind them. Returns how many. */
  retryParked(messageId?: string): number {
    this.#requireOpen();
    const count = this.#file.unpark(messageId);
    for (const toZone of this.#file.zones()) this.#lane(toZone).wake();
    return count;
  }

  /** Deletes a parked fact for good. False: there is no such one. */
  dropParked(messageId: string): boolean {
    this.#requireOpen();
    const dropped = this.#file.drop(messageId);
    if (dropped?.object) this.#release(dropped.object);
    return dropped !== undefined;
  }

  /** Parks a fact that waits, so that those behind it can go. It may be on its way already. False: it does not wait. */
  setAside(messageId: string, why: string): boolean {
    this.#requireOpen();
    const isParked = this.#file.setAside(messageId, 'set_aside', why);
    this.#endFlushes();
    return isParked;
  }

  renewCertificates(tls: TlsOptions): void {
    this.#connection.renew(tls);
  }

  /** Ends the call under way and lets go of the file. What has not been delivered goes when it is opened again. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#flushPending();
    await Promise.all([...this.#lanes.values()].map((lane) => lane.stop()));
    for (const { reject } of this.#flushes.splice(0)) reject(closed());
    this.#connection.close();
    this.#file.close();
  }

  async #stage({ bucket, key, source }: Attachment): Promise<StoredObject> {
    requireBucket(bucket, 'attachment.bucket');
    requireObjectKey(key, 'attachment.key');
    return this.#objects.stage(source, this.#file.room, () => this.#file.fullError());
  }

  #add(fact: NewFact): Promise<boolean> {
    return new Promise<boolean>((resolve, reject) => {
      this.#pending.push({ fact, resolve, reject });
      if (this.#pending.length === 1) setImmediate(() => this.#flushPending());
    });
  }

  #flushPending(): void {
    const pending = this.#pending;
    if (pending.length === 0) return;
    this.#pending = [];
    try {
      const answers = this.#file.add(pending.map(({ fact }) => fact));
      pending.forEach(({ resolve, reject }, i) => {
        const answer = answers[i];
        if (typeof answer === 'boolean') resolve(answer);
        else reject(answer);
      });
    } catch (error) {
      for (const { reject } of pending) reject(error);
      return;
    }
    if (!this.#closing) for (const { fact } of pending) this.#lane(fact.toZone).wake();
  }

  #lane(toZone: string): Lane {
    const known = this.#lanes.get(toZone);
    if (known) return known;
    const { retry } = this.#options;
    const lane = new Lane({
      toZone,
      file: this.#file,
      connection: this.#connection,
      fileOf: (digest) => this.#objects.fileOf(digest),
      retry: { minMs: retry?.minMs ?? 100, maxMs: retry?.maxMs ?? 30_000 },
      logger: this.#logger,
      onSettled: (settled) => this.#settled(settled),
    });
    this.#lanes.set(toZone, lane);
    lane.start();
    return lane;
  }

  #settled({ delivered, parked }: Settled): void {
    for (const { object } of delivered) if (object) this.#release(object);
    const { onDelivered, onParked } = this.#options;
    for (const fact of delivered) this.#told(() => onDelivered?.(fact));
    for (const fact of parked) this.#told(() => onParked?.(fact));
    this.#endFlushes();
  }

  /** What a callback throws must not stop the sender. */
  #told(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.#logger.error({ error: messageOf(error) }, 'a callback of the producer failed');
    }
  }

  /** Once the file is closed nobody knows what is needed; the next start does. */
  #release({ digest }: StoredObject): void {
    if (!this.#file.isOpen) return;
    this.#objects.release(digest, (needed) => this.#file.needsObject(needed));
  }

  #endFlushes(): void {
    if (this.#flushes.length === 0) return;
    const first = this.#file.firstWaiting() ?? Number.POSITIVE_INFINITY;
    const done = this.#flushes.filter(({ upTo }) => upTo < first);
    this.#flushes = this.#flushes.filter(({ upTo }) => upTo >= first);
    for (const { resolve } of done) resolve();
  }

  #requireOpen(): void {
    if (this.#closing) throw closed();
  }
}

const referenceOf = ({ bucket, key, mediaType, fileName }: Attachment, stored: StoredObject) =>
  referenceTo({ bucket, key, mediaType, fileName }, stored);

const closed = (): TallymanError =>
  new TallymanError('CLOSED', 'This producer was closed: open another one, or close it after its last use.');
