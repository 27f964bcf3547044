import type { Database } from '../../../engine/database/database.ts';
import { TenantDatabase } from '../../../engine/database/tenant.ts';
import { type ChainedRange, type Delivery, type Frontier, streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { Receipt, SignedReceipt } from '../domain/receipt.ts';
import { deliver } from './deliver.ts';
import type { FactLog } from './log.ts';
import * as consumers from './postgres/consumers.ts';
import * as crossings from './postgres/crossings.ts';
import * as drops from './postgres/drops.ts';
import * as oneWay from './postgres/exports.ts';
import * as fullness from './postgres/fullness.ts';
import * as quarantine from './postgres/quarantine.ts';
import type {
  Appended,
  BufferRole,
  ConsumerState,
  Delivered,
  Dropped,
  Exported,
  FactStore,
  Found,
  NewFact,
  Position,
  QuarantinedEntry,
  QuarantinedNote,
  QuarantinedOptions,
  ReadOptions,
  Resolution,
  StoredEntry,
  StreamId,
  StreamState,
} from './store.ts';

export interface NodeStoreOptions {
  /** Asked before a peer's facts go into a forward buffer; throws if it has no room for so many bytes. Default: there is room. */
  readonly admit?: (stream: StreamId, bytes: number) => Promise<void>;
}

/** Of a gap record. */
const aboutAGap = 200;

/** Facts in a log, everything else in tables of the schema `boundary`. */
export class NodeStore implements FactStore {
  readonly #database: Database;
  readonly #log: FactLog;
  readonly #admit: NodeStoreOptions['admit'];

  constructor(database: Database, log: FactLog, { admit }: NodeStoreOptions = {}) {
    this.#database = database;
    this.#log = log;
    this.#admit = admit;
  }

  append(stream: StreamId, fact: NewFact): Promise<Appended> {
    return this.#log.append(stream, fact);
  }

  appendAll(stream: StreamId, facts: readonly NewFact[]): Promise<(Appended | Error)[]> {
    return this.#log.appendAll(stream, facts);
  }

  appendInOrder(stream: StreamId, facts: readonly NewFact[]): Promise<void> {
    return this.#log.appendInOrder(stream, facts);
  }

  read(stream: StreamId, options: ReadOptions): Promise<StoredEntry[]> {
    return this.#log.read(stream, options);
  }

  find(tenantId: string, buffer: BufferRole, from: string, messageId: string): Promise<Found | undefined> {
    return this.#log.find(tenantId, buffer, from, messageId);
  }

  async state(stream: StreamId): Promise<StreamState | undefined> {
    const [state, fullSince] = await Promise.all([
      this.#log.state(stream),
      fullness.fullSince(this.#of(stream), stream),
    ]);
    return state && { ...state, fullSince };
  }

  async streams(tenantId: string): Promise<StreamState[]> {
    const [full, states] = await Promise.all([
      fullness.allFull(new TenantDatabase(this.#database, tenantId)),
      this.#log.streams(tenantId),
    ]);
    return states.map((state) => ({ ...state, fullSince: full(state) }));
  }

  offsetAt(stream: StreamId, at: Date): Promise<number> {
    return this.#log.offsetAt(stream, at);
  }

  trim(stream: StreamId, upTo: number): Promise<number> {
    return this.#log.trim(stream, upTo);
  }

  setFull(stream: StreamId, full: boolean): Promise<void> {
    return this.#of(stream).transaction((tx) => fullness.setFull(tx, stream, full));
  }

  newEpoch(stream: StreamId, nextOffset: number): Promise<string> {
    return this.#log.newEpoch(stream, nextOffset);
  }

  async deliver(
    stream: StreamId,
    delivery: Delivery,
    sign: (receipt: Receipt) => SignedReceipt,
  ): Promise<Delivered> {
    await this.#requireRoom(stream, delivery);
    return deliver(stream, delivery, { log: this.#log, tables: this.#of(stream), sign });
  }

  frontier(stream: StreamId): Promise<Frontier | undefined> {
    return this.#log.frontier(stream);
  }

  acceptEpoch(stream: StreamId, epoch: string, chain: string): Promise<Frontier> {
    return this.#log.acceptEpoch(stream, epoch, chain);
  }

  async openConsumer(
    stream: StreamId,
    name: string,
    options: { readonly instance: string; readonly leaseMs: number; readonly start: Position },
  ): Promise<ConsumerState> {
    const on = this.#of(stream);
    const known = await consumers.lease(on, stream, name, options);
    if (known) return known;
    await consumers.create(on, stream, name, await this.#cursorAt(stream, options.start), options);
    const created = await consumers.lease(on, stream, name, options);
    if (!created)
      throw new BoundaryError(
        'ABORTED',
        'consumer_deleted',
        `consumer "${name}" of ${streamName(stream)} was deleted at the same time`,
      );
    return created;
  }

  noteFetched(stream: StreamId, opened: ConsumerState, offset: number): Promise<boolean> {
    return consumers.noteFetched(this.#of(stream), stream, opened, offset);
  }

  confirm(stream: StreamId, name: string, instance: string, offset: number): Promise<number> {
    return consumers.confirm(this.#of(stream), stream, name, instance, offset);
  }

  async seek(stream: StreamId, name: string, position: Position): Promise<ConsumerState> {
    return consumers.seek(this.#of(stream), stream, name, await this.#cursorAt(stream, position));
  }

  deleteConsumer(stream: StreamId, name: string): Promise<boolean> {
    return consumers.remove(this.#of(stream), stream, name);
  }

  consumers(stream: StreamId): Promise<ConsumerState[]> {
    return consumers.list(this.#of(stream), stream);
  }

  addReceipt(buffer: BufferRole, receipt: SignedReceipt): Promise<void> {
    return crossings.addReceipt(new TenantDatabase(this.#database, receipt.tenantId), buffer, receipt);
  }

  receipts(
    stream: StreamId,
    options: { readonly after: number; readonly limit: number },
  ): Promise<SignedReceipt[]> {
    return crossings.receipts(this.#of(stream), stream, options);
  }

  quarantine(tenantId: string, entries: readonly QuarantinedEntry[]): Promise<void> {
    return new TenantDatabase(this.#database, tenantId).transaction((tx) =>
      quarantine.addQuarantined(tx, tenantId, entries),
    );
  }

  quarantined(stream: StreamId, options: QuarantinedOptions): Promise<QuarantinedEntry[]> {
    return quarantine.quarantined(this.#of(stream), stream, options);
  }

  quarantinedNotes(
    stream: StreamId,
    options: { readonly after: number; readonly limit: number },
  ): Promise<QuarantinedNote[]> {
    return quarantine.quarantinedNotes(this.#of(stream), stream, options);
  }

  resolveQuarantined(
    stream: StreamId,
    which: { readonly epoch: string; readonly offset: number },
    resolution: Omit<Resolution, 'at'>,
  ): Promise<void> {
    return quarantine.resolveOne(this.#of(stream), stream, which, resolution);
  }

  isInQuarantine(tenantId: string, buffer: BufferRole, from: string, messageId: string): Promise<boolean> {
    const on = new TenantDatabase(this.#database, tenantId);
    return quarantine.isInQuarantine(on, { tenantId, buffer, from }, messageId);
  }

  /** In this order: a crash in between leaves facts that are sent as usual, and a note that nobody needs. */
  async drop(stream: StreamId, ...ranges: (ChainedRange & { readonly epoch: string })[]): Promise<number> {
    await drops.addDropped(this.#of(stream), stream, ranges);
    return this.trim(stream, ranges.at(-1)?.to ?? 0);
  }

  dropped(stream: StreamId, options: { readonly after: number; readonly limit: number }): Promise<Dropped[]> {
    return drops.dropped(this.#of(stream), stream, options);
  }

  noteExported(stream: StreamId, range: ChainedRange & { readonly epoch: string }): Promise<void> {
    return oneWay.noteExported(this.#of(stream), stream, range);
  }

  exported(
    stream: StreamId,
    options: { readonly after: number; readonly limit: number },
  ): Promise<Exported[]> {
    return oneWay.exported(this.#of(stream), stream, options);
  }

  get trouble(): string | undefined {
    return this.#log.trouble;
  }

  stop(): Promise<void> {
    return this.#log.stop();
  }

  /** Whatever way it came. A delivery that comes again needs no room: its source waits for the answer that was lost. */
  async #requireRoom(stream: StreamId, { entries, dropped = [] }: Delivery): Promise<void> {
    const last = entries.at(-1)?.offset ?? dropped.at(-1)?.to;
    if (!this.#admit || last === undefined) return;
    const ofFacts = entries.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
    const gaps = dropped.reduce((sum, { from, to }) => sum + to - from + 1, 0);
    try {
      await this.#admit(stream, ofFacts + gaps * aboutAGap);
    } catch (error) {
      const { offset = 0 } = (await this.frontier(stream)) ?? {};
      if (last > offset) throw error;
    }
  }

  #of(stream: StreamId): TenantDatabase {
    return new TenantDatabase(this.#database, stream.tenantId);
  }

  async #cursorAt(stream: StreamId, position: Position): Promise<number> {
    const { first, last } = (await this.#log.state(stream)) ?? { first: 1, last: 0 };
    if (position === 'end') return last;
    if ('at' in position) return (await this.offsetAt(stream, position.at)) - 1;
    if (position.after > last)
      throw new BoundaryError(
        'OUT_OF_RANGE',
        'offset_not_issued',
        `${streamName(stream)} ends at offset ${last}; a consumer cannot begin after ${position.after}`,
      );
    // What was trimmed cannot be read: the backlog begins with what is there.
    return Math.max(position.after, first - 1);
  }
}
