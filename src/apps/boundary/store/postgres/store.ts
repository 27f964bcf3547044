import type { Database } from '../../../../engine/database/database.ts';
import { TenantDatabase } from '../../../../engine/database/tenant.ts';
import { TallymanError } from '../../../../engine/errors.ts';
import type { LogEntry } from '../../../../engine/log/entry.ts';
import { Log } from '../../../../engine/log/log.ts';
import type { StreamInfo } from '../../../../engine/log/stream.ts';
import { type ChainedRange, type Delivery, type Frontier, streamName } from '../../domain/delivery.ts';
import { BoundaryError } from '../../domain/errors.ts';
import type { Receipt, SignedReceipt } from '../../domain/receipt.ts';
import type { FactRecord, GapRecord } from '../../domain/record.ts';
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
  ReadOptions,
  Resolution,
  StoredEntry,
  StreamId,
  StreamState,
} from '../store.ts';
import * as consumers from './consumers.ts';
import * as crossings from './crossings.ts';
import { deliver } from './deliver.ts';
import * as drops from './drops.ts';
import * as oneWay from './exports.ts';
import * as fullness from './fullness.ts';
import { LogStreams, streamIdOf } from './log-streams.ts';
import * as quarantine from './quarantine.ts';

const pageOfStreams = 1000;

/** Facts in the engine's log, everything else in tables of the schema `boundary`. */
export class PostgresFactStore implements FactStore {
  readonly #database: Database;
  readonly #log: Log;
  readonly #streams = new LogStreams();

  constructor(database: Database) {
    this.#database = database;
    this.#log = new Log(database);
  }

  async append(stream: StreamId, { record, digest }: NewFact): Promise<Appended> {
    try {
      return await this.#log.append(this.#streams.of(stream), {
        key: record.messageId,
        payload: record,
        digest,
      });
    } catch (error) {
      throw explained(error, stream, record.messageId);
    }
  }

  async read(stream: StreamId, options: ReadOptions): Promise<StoredEntry[]> {
    return (await this.#log.read(this.#streams.of(stream), options)).map(toStored);
  }

  async find(
    tenantId: string,
    buffer: BufferRole,
    from: string,
    messageId: string,
  ): Promise<Found | undefined> {
    const found = await this.#log.find(this.#streams.ofKeySpace(tenantId, buffer, from), messageId);
    const stream = found && streamIdOf({ tenantId, name: found.stream });
    return stream && { stream, offset: found.offset, entry: found.entry && toStored(found.entry) };
  }

  async state(stream: StreamId): Promise<StreamState | undefined> {
    const [info, fullSince] = await Promise.all([
      this.#log.stream(this.#streams.of(stream)),
      fullness.fullSince(this.#of(stream), stream),
    ]);
    return info && toState(stream, info, fullSince);
  }

  async streams(tenantId: string): Promise<StreamState[]> {
    const full = await fullness.allFull(new TenantDatabase(this.#database, tenantId));
    const found: StreamState[] = [];
    for (let after = ''; ; ) {
      const page = await this.#log.streams({ tenantId, after, limit: pageOfStreams });
      for (const info of page) {
        const stream = streamIdOf(info);
        if (stream) found.push(toState(stream, info, full(stream)));
      }
      after = page.at(-1)?.name ?? '';
      if (page.length < pageOfStreams) return found;
    }
  }

  offsetAt(stream: StreamId, at: Date): Promise<number> {
    return this.#log.offsetAt(this.#streams.of(stream), at);
  }

  trim(stream: StreamId, upTo: number): Promise<number> {
    return this.#log.trim(this.#streams.of(stream), upTo);
  }

  setFull(stream: StreamId, full: boolean): Promise<void> {
    return this.#of(stream).transaction((tx) => fullness.setFull(tx, stream, full));
  }

  newEpoch(stream: StreamId, nextOffset: number): Promise<string> {
    return this.#log.newEpoch(this.#streams.of(stream), nextOffset);
  }

  async deliver(
    stream: StreamId,
    delivery: Delivery,
    sign: (receipt: Receipt) => SignedReceipt,
  ): Promise<Delivered> {
    const ref = this.#streams.of(stream);
    const delivered = await deliver(stream, delivery, {
      database: this.#database,
      log: this.#log,
      ref,
      sign,
    });
    this.#log.grew(ref);
    return delivered;
  }

  frontier(stream: StreamId): Promise<Frontier | undefined> {
    return crossings.frontier(this.#of(stream), stream);
  }

  acceptEpoch(stream: StreamId, epoch: string, chain: string): Promise<Frontier> {
    return this.#of(stream).transaction(async (tx) => {
      const { offset } = await crossings.lockFrontier(tx, stream, { epoch, offset: 0, chain });
      await crossings.moveFrontier(tx, stream, { epoch, offset, chain });
      return { epoch, offset, chain };
    });
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

  quarantined(
    stream: StreamId,
    options: { readonly after: number; readonly limit: number; readonly isOpen?: boolean },
  ): Promise<QuarantinedEntry[]> {
    return quarantine.quarantined(this.#of(stream), stream, options);
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
  async drop(stream: StreamId, range: ChainedRange & { readonly epoch: string }): Promise<number> {
    await drops.addDropped(this.#of(stream), stream, range);
    return this.trim(stream, range.to);
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

  stop(): Promise<void> {
    return this.#log.stop();
  }

  #of(stream: StreamId): TenantDatabase {
    return new TenantDatabase(this.#database, stream.tenantId);
  }

  async #cursorAt(stream: StreamId, position: Position): Promise<number> {
    const { first, last } = await this.#log.head(this.#streams.of(stream));
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

const toStored = ({ offset, key, digest, chain, text, payload, appendedAt }: LogEntry): StoredEntry => ({
  offset,
  key,
  digest,
  chain,
  text,
  record: payload as FactRecord | GapRecord,
  appendedAt,
});

const toState = (stream: StreamId, info: StreamInfo, fullSince: Date | undefined): StreamState => ({
  ...stream,
  epoch: info.epoch,
  chain: info.chain,
  first: info.first,
  last: info.last,
  bytes: info.bytes,
  fullSince,
});

/** Errors of the log, in the words of the boundary. */
function explained(error: unknown, stream: StreamId, messageId: string): unknown {
  if (!(error instanceof TallymanError)) return error;
  const details = { message_id: messageId };
  switch (error.code) {
    case 'CONFLICTING_DUPLICATE':
      return new BoundaryError(
        'ALREADY_EXISTS',
        'conflicting_duplicate',
        `message id "${messageId}" of zone "${stream.from}" was used before for other content. A fact never changes: ` +
          'give a new fact an id of its own.',
        { cause: error, details },
      );
    case 'PAYLOAD_TOO_LARGE':
      return new BoundaryError('INVALID_ARGUMENT', 'too_large', `fact "${messageId}": ${error.message}`, {
        cause: error,
        details,
      });
    case 'LOG_BUSY':
      return new BoundaryError('RESOURCE_EXHAUSTED', 'busy', error.message, { cause: error, details });
    default:
      return error;
  }
}
