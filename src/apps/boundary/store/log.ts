/**
 * The port to the logs of a node: facts with dense offsets in commit order, chained, and message ids that are unique forever.
 * Everything else that a node keeps is in tables of PostgreSQL (`NodeStore`), whichever adapter holds the log.
 */
import type { Queryable } from '../../../engine/database/database.ts';
import type { NewEntry } from '../../../engine/log/entry.ts';
import type { CheckedEntry, Frontier } from '../domain/delivery.ts';
import type {
  Appended,
  BufferRole,
  Found,
  NewFact,
  ReadOptions,
  StoredEntry,
  StreamId,
  StreamState,
} from './store.ts';

export type LogState = Omit<StreamState, 'fullSince'>;

/** All methods of `FactStore` with these names promise the same. */
export interface FactLog {
  append(stream: StreamId, fact: NewFact): Promise<Appended>;
  appendAll(stream: StreamId, facts: readonly NewFact[]): Promise<(Appended | Error)[]>;
  appendInOrder(stream: StreamId, facts: readonly NewFact[]): Promise<void>;
  read(stream: StreamId, options: ReadOptions): Promise<StoredEntry[]>;
  find(tenantId: string, buffer: BufferRole, from: string, messageId: string): Promise<Found | undefined>;
  /**
   * The digest of the fact that has this id among everything from one zone, also after it was trimmed: the whole of it, or its
   * first half. Undefined: the id is new.
   */
  digestOf(stream: StreamId, messageId: string): Promise<string | undefined>;
  state(stream: StreamId): Promise<LogState | undefined>;
  streams(tenantId: string): Promise<LogState[]>;
  offsetAt(stream: StreamId, at: Date): Promise<number>;
  trim(stream: StreamId, upTo: number): Promise<number>;
  newEpoch(stream: StreamId, nextOffset: number): Promise<string>;
  /**
   * Takes entries of a source over into a forward buffer. Throws `TakenIds` if a message id is taken: the caller finds out
   * which, and comes again with gap records in their places.
   */
  takeOver(stream: StreamId, crossing: Crossing): Promise<TakenOver>;
  frontier(stream: StreamId): Promise<Frontier | undefined>;
  acceptEpoch(stream: StreamId, epoch: string, chain: string): Promise<Frontier>;
  /** Why it cannot be used at present. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** What a delivery does to a log, and to the tables around it. */
export interface Crossing {
  /** Decides what to take over behind the frontier; undefined: nothing of it is new. Throws if it does not fit. */
  plan(before: Frontier | undefined): CrossingPlan | undefined;
  /** Before the entries are in the log; the same once more changes nothing. */
  keepRefused(tx: Queryable, plan: CrossingPlan): Promise<void>;
  /** After the entries are in the log: `facts` are those after `from`, up to `reached`. */
  keepReceived(tx: Queryable, received: Received): Promise<void>;
}

export interface CrossingPlan {
  /** For each offset after the frontier one, in order. */
  readonly entries: readonly NewEntry[];
  /** What was delivered and lies behind the frontier. */
  readonly delivered: readonly CheckedEntry[];
  /** Where the frontier is when they are in. */
  readonly frontier: Frontier;
}

export interface Received {
  /** The first offset that no receipt covers. */
  readonly from: number;
  readonly reached: Frontier;
  /** Gap records are left out. */
  readonly facts: readonly Pick<CheckedEntry, 'offset' | 'record'>[];
}

export interface TakenOver {
  readonly frontier: Frontier | undefined;
}

/** Some message id of these entries is taken. */
export class TakenIds extends Error {
  readonly entries: readonly CheckedEntry[];

  constructor(entries: readonly CheckedEntry[]) {
    super('a message id is taken');
    this.entries = entries;
  }
}
