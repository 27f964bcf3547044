/**
 * The port to a node's storage: logs with dense offsets and keys that are unique forever, cursors of consumers, and what is
 * kept about crossings. `test/apps/boundary/store/conformance.ts` says what an adapter must do.
 */
import type { ChainedRange, DeliveredEntry, Delivery, Frontier } from '../domain/delivery.ts';
import type { Receipt, SignedReceipt } from '../domain/receipt.ts';
import type { FactRecord, GapRecord } from '../domain/record.ts';

/**
 * The two roles of a log. `store`: facts that were appended in this zone and go to another one. `forward`: facts that came
 * from another zone, at the same offsets.
 */
export type BufferRole = 'store' | 'forward';

export interface StreamId {
  readonly tenantId: string;
  readonly buffer: BufferRole;
  readonly from: string;
  readonly to: string;
}

export interface NewFact {
  readonly record: FactRecord;
  /** See `contentDigest`. */
  readonly digest: string;
}

export interface Appended {
  readonly offset: number;
  /** The fact was there. */
  readonly existing: boolean;
}

export interface StoredEntry extends Omit<DeliveredEntry, 'refusal'> {
  readonly record: FactRecord | GapRecord;
  /** By the clock of the storage; never decreases along the offsets. */
  readonly appendedAt: Date;
}

export interface Found {
  readonly stream: StreamId;
  readonly offset: number;
  /** The whole digest, or its first half where the entry was trimmed: a digest of the same content begins with it. */
  readonly digest: string;
  /** Undefined if it was trimmed. */
  readonly entry: StoredEntry | undefined;
}

export interface StreamState extends StreamId {
  readonly epoch: string;
  readonly chain: string;
  /** The first offset that was not trimmed. */
  readonly first: number;
  /** 0: nothing was ever appended. */
  readonly last: number;
  /** Of the records that were not trimmed. */
  readonly bytes: number;
  /** Since when appends are refused, because the stream has reached its limit. */
  readonly fullSince: Date | undefined;
}

export interface ReadOptions {
  readonly after: number;
  readonly limit: number;
  readonly maxBytes: number;
  /** Waits up to this long if there is nothing yet. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal;
}

export interface ConsumerState {
  readonly name: string;
  /** Everything up to here is confirmed. */
  readonly cursor: number;
  /** The highest offset that was returned to the present instance. */
  readonly fetched: number;
  /** Which process has it. */
  readonly instance: string;
  /** Grows with each takeover and seek: what was fetched before counts no more. */
  readonly generation: number;
  readonly leasedUntil: Date;
  readonly createdAt: Date;
  readonly confirmedAt: Date | undefined;
}

/** Where a consumer begins or goes on. */
export type Position =
  | { readonly after: number }
  | { readonly at: Date }
  /** With the next fact to come. */
  | 'end';

export interface QuarantinedEntry {
  /** In which zone it is kept: `store`, in the zone that sent it; `forward`, in the zone that could not take it. */
  readonly buffer: BufferRole;
  readonly from: string;
  readonly to: string;
  readonly epoch: string;
  readonly offset: number;
  readonly messageId: string;
  readonly reason: string;
  readonly message: string;
  /** The record, byte for byte. */
  readonly text: string;
  readonly quarantinedAt: Date;
  /** Undefined: it is open. */
  readonly resolution?: Resolution;
}

export type QuarantinedNote = Omit<QuarantinedEntry, 'text'>;

export interface QuarantinedOptions {
  /** Behind this offset. */
  readonly after: number;
  /** Behind the entry of this epoch at `after`: after a restore an offset may have several. */
  readonly afterEpoch?: string;
  readonly limit: number;
  /** Only what no later fact stands for. */
  readonly isOpen?: boolean;
}

/** How a fact left quarantine: a later fact stands for it. */
export interface Resolution {
  /** `redriven`: the later fact has its content. `dropped`: the later fact says that it will not come. */
  readonly how: 'redriven' | 'dropped';
  /** The offset of the later fact. */
  readonly by: number;
  readonly at: Date;
}

/** What left a zone in one-way mode. */
export interface Exported extends ChainedRange {
  readonly epoch: string;
  readonly exportedAt: Date;
}

/** What a source has dropped, in the zone that dropped it. */
export interface Dropped extends ChainedRange {
  readonly epoch: string;
  readonly droppedAt: Date;
}

export interface Delivered {
  readonly frontier: Frontier;
  /** Of a delivery that was received before: the receipt of then. Undefined: nothing was delivered. */
  readonly receipt: SignedReceipt | undefined;
  /** Facts that the receipt covers and that could not be taken. */
  readonly quarantined: readonly QuarantinedEntry[];
}

export interface FactStore {
  /**
   * Appends to a store buffer; resolves when it is durable. Concurrent callers share a commit. A message id is unique among
   * all streams of a tenant that come from one zone, forever: also after its fact was trimmed. The same id with other
   * content is refused (ALREADY_EXISTS, conflicting_duplicate), and the others of the commit do not notice.
   */
  append(stream: StreamId, fact: NewFact): Promise<Appended>;

  /**
   * The same for facts of one call: an answer for each, and offsets in this order. Behind a fact that cannot be appended now
   * nothing is appended (ABORTED, held_back), so that the order is kept when the caller sends them again. A fact that can never be
   * appended holds back nothing.
   */
  appendAll(stream: StreamId, facts: readonly NewFact[]): Promise<(Appended | Error)[]>;

  /**
   * Appends facts whose order counts, in commits of their own, in this order. On error a prefix may have been stored; nothing after the failing fact is
   * stored. The exception is a conflict: that fact can never be stored, and those after it may be.
   */
  appendInOrder(stream: StreamId, facts: readonly NewFact[]): Promise<void>;

  /** Entries after an offset, in order. A reader that has seen n never finds anything below n appear later. */
  read(stream: StreamId, options: ReadOptions): Promise<StoredEntry[]>;

  /** Where a message id is, in a buffer of this node. */
  find(tenantId: string, buffer: BufferRole, from: string, messageId: string): Promise<Found | undefined>;

  /** Undefined while nothing was ever appended. */
  state(stream: StreamId): Promise<StreamState | undefined>;
  /** All streams of a tenant, by name. */
  streams(tenantId: string): Promise<StreamState[]>;
  /** The first offset that was appended at this time or later; one above the last if there is none. */
  offsetAt(stream: StreamId, at: Date): Promise<number>;
  /** Drops entries up to and including an offset. Ids stay, offsets continue. */
  trim(stream: StreamId, upTo: number): Promise<number>;
  /** Remembers that a stream has reached its limit, or is below it again, for all processes of the node. */
  setFull(stream: StreamId, full: boolean): Promise<void>;
  /**
   * After the storage was restored from a backup: starts a new epoch, with offsets that go on from `nextOffset` if that is
   * higher. The peer refuses it until it is accepted there (`acceptEpoch`).
   */
  newEpoch(stream: StreamId, nextOffset: number): Promise<string>;

  /**
   * Puts what a peer delivers into a forward buffer and keeps the receipt that `sign` makes. On error a prefix may have been stored:
   * the frontier says how much, and the next delivery completes it.
   *
   * Skips what was received before. Refuses a delivery that does not fit what was received (see `checkDelivery`). Puts an entry that
   * cannot be taken into quarantine, and a gap record at its offset. A fact that stands for one in quarantine resolves it. What
   * the source has dropped gets gap records. A full stream takes nothing that is new (RESOURCE_EXHAUSTED, stream_full).
   */
  deliver(
    stream: StreamId,
    delivery: Delivery,
    sign: (receipt: Receipt) => SignedReceipt,
  ): Promise<Delivered>;
  /** How far a forward buffer has come, in the source's offsets. Undefined: nothing was delivered yet. */
  frontier(stream: StreamId): Promise<Frontier | undefined>;
  /** Goes on with a new epoch of the source, from the offset that was reached. */
  acceptEpoch(stream: StreamId, epoch: string, chain: string): Promise<Frontier>;

  /**
   * Returns the consumer, created at `start` if it is not known, and leases it to the instance. Refused while another
   * instance has it (FAILED_PRECONDITION, consumer_in_use).
   */
  openConsumer(
    stream: StreamId,
    name: string,
    options: { readonly instance: string; readonly leaseMs: number; readonly start: Position },
  ): Promise<ConsumerState>;
  /** Notes what the instance was given. False: the consumer was taken over, sought or deleted since it was opened. */
  noteFetched(stream: StreamId, opened: ConsumerState, offset: number): Promise<boolean>;
  /** Moves the cursor to an offset that was fetched, never backwards, and returns it. */
  confirm(stream: StreamId, name: string, instance: string, offset: number): Promise<number>;
  /** Moves a consumer anywhere. What it has fetched before can no longer be confirmed. */
  seek(stream: StreamId, name: string, position: Position): Promise<ConsumerState>;
  /** False: there was none. */
  deleteConsumer(stream: StreamId, name: string): Promise<boolean>;
  /** By name. */
  consumers(stream: StreamId): Promise<ConsumerState[]>;

  /** Keeps a receipt that a receiver has sent. */
  addReceipt(buffer: BufferRole, receipt: SignedReceipt): Promise<void>;
  /** Receipts that cover offsets after this one, in order. */
  receipts(
    stream: StreamId,
    options: { readonly after: number; readonly limit: number },
  ): Promise<SignedReceipt[]>;

  /** Keeps what a receiver could not take, in the zone that sent it. */
  quarantine(tenantId: string, entries: readonly QuarantinedEntry[]): Promise<void>;
  /** What is or was in quarantine, in order. */
  quarantined(stream: StreamId, options: QuarantinedOptions): Promise<QuarantinedEntry[]>;
  /** The same without their records. */
  quarantinedNotes(
    stream: StreamId,
    options: { readonly after: number; readonly limit: number },
  ): Promise<QuarantinedNote[]>;
  /** Notes in the zone that sent it which later fact stands for it. The first note stays. */
  resolveQuarantined(
    stream: StreamId,
    which: { readonly epoch: string; readonly offset: number },
    resolution: Omit<Resolution, 'at'>,
  ): Promise<void>;
  /** Whether a fact of this message id is in quarantine and open. */
  isInQuarantine(tenantId: string, buffer: BufferRole, from: string, messageId: string): Promise<boolean>;

  /**
   * Notes that facts are dropped before they crossed, then drops them, up to the end of the last range. Ids stay, offsets continue.
   * A range of more than `mostDropped` offsets cannot cross.
   */
  drop(stream: StreamId, ...ranges: (ChainedRange & { readonly epoch: string })[]): Promise<number>;
  /** What was dropped and reaches beyond an offset, in order. */
  dropped(stream: StreamId, options: { readonly after: number; readonly limit: number }): Promise<Dropped[]>;

  /** Notes what left in one-way mode. */
  noteExported(stream: StreamId, range: ChainedRange & { readonly epoch: string }): Promise<void>;
  /** What left and reaches beyond an offset, in order. */
  exported(
    stream: StreamId,
    options: { readonly after: number; readonly limit: number },
  ): Promise<Exported[]>;

  /** Why the storage cannot be used at present, if that is not PostgreSQL's outage. */
  readonly trouble: string | undefined;
  /** Ends waiting reads. */
  stop(): Promise<void>;
}
