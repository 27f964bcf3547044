import { Batcher } from '../batching/batcher.ts';
import { type Database, isConnectionError, type Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import { logAppend, logErrors } from '../sql/log-append.ts';
import { logNewEpoch } from '../sql/log-new-epoch.ts';
import { logOffsetAt } from '../sql/log-offset-at.ts';
import { requireWhole } from '../validate.ts';
import { type Answer, type Appended, answersFor, byKey, conflict, placesOf } from './answers.ts';
import { batchesOf } from './batches.ts';
import { keyHashOf, type LogEntry, type NewEntry, type Prepared, prepare } from './entry.ts';
import * as read from './read.ts';
import { codeOf, isRefusal, type Queued, Sequence, sendPart, type Turn } from './sequence.ts';
import { type Head, type ResolvedStream, resolve, type StreamInfo, type StreamRef } from './stream.ts';
import { deleteStream, trim } from './trim.ts';
import { lookUntilGrown } from './waiters.ts';
import { LogWatch } from './watch.ts';

export interface LogOptions {
  /** Default 1 MiB. */
  readonly maxPayloadBytes?: number;
  /** How many bytes of payload may wait for their commit before `append` refuses more (LOG_BUSY). Default 64 MiB. */
  readonly maxWaitingBytes?: number;
}

export interface ReadOptions {
  readonly after?: number;
  /** Default 100. */
  readonly limit?: number;
  /** Stops before the payloads exceed this; at least one entry is returned. Default: no limit. */
  readonly maxBytes?: number;
  /** If there is nothing yet, waits up to this long for an entry. Default 0. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal;
}

/** What the caller believes about the stream; if it is not so, nothing is appended. */
export interface Expectation {
  readonly epoch?: string;
  /** The offset of the first entry. */
  readonly offset?: number;
}

/** A key that is known; its entry, unless that was trimmed. */
export interface FoundKey {
  /** The name of the stream that has it: one of its key space. */
  readonly stream: string;
  readonly offset: number;
  /** The whole digest, or its first half where the entry was trimmed: a digest of the same content begins with it. */
  readonly digest: string;
  readonly entry: LogEntry | undefined;
}

interface Line {
  readonly batcher: Batcher<Queued, Appended>;
  /** Callers without an answer; a line without any is deleted. */
  callers: number;
  /** The last batch met keys that were taken, so the next one may. */
  careful: boolean;
}

const mostInABatch = 1000;

/**
 * Append-only streams with dense offsets (1, 2, 3 …) in commit order: a reader that has seen n never finds anything
 * below n appear later, so "read after n" misses nothing.
 *
 * @example
 * const log = new Log(database);
 * const { offset } = await log.append('facts', { key: 'order-17', payload: { state: 'shipped' } });
 * const entries = await log.read('facts', { after: offset - 1, limit: 100 });
 */
export class Log {
  readonly #database: Database;
  readonly #maxPayloadBytes: number;
  readonly #maxWaitingBytes: number;
  readonly #lines = new Map<string, Line>();
  readonly #watch: LogWatch;
  #waitingBytes = 0;

  constructor(database: Database, options: LogOptions = {}) {
    this.#database = database;
    this.#maxPayloadBytes = options.maxPayloadBytes ?? 1024 * 1024;
    this.#maxWaitingBytes = options.maxWaitingBytes ?? 64 * 1024 * 1024;
    this.#watch = new LogWatch(database);
  }

  /**
   * Appends the entry if its key is new; resolves when it is durable. Concurrent callers share a commit. Entries that one
   * process appends to a stream get their offsets in the order of the calls.
   *
   * The same key with other content is refused (CONFLICTING_DUPLICATE); the others of the commit do not notice.
   */
  async append(ref: StreamRef, entry: NewEntry): Promise<Appended> {
    return this.#submit(resolve(ref), entry);
  }

  /**
   * The same for entries of one caller whose order counts: an answer for each, in their order. They share commits with others as
   * well. Behind an entry that cannot be appended now nothing is appended (HELD_BACK), so that the order is kept when the caller
   * appends them again. An entry that can never be appended holds back nothing.
   */
  async appendAll(ref: StreamRef, entries: readonly NewEntry[]): Promise<Answer[]> {
    const stream = resolve(ref);
    const sequence = new Sequence();
    return Promise.all(
      entries.map((entry, n) =>
        this.#submit(stream, entry, { sequence, n }).catch((error: unknown) => error as Error),
      ),
    );
  }

  /**
   * Appends as part of the caller's transaction, all of the entries or none: a conflict aborts the transaction.
   *
   * From here to its end the transaction holds the stream's lock, and every other appender waits; append last, and to
   * several streams in sorted order, so that two writers cannot deadlock. Call `grew` after the commit, so that readers
   * need not poll.
   */
  async appendWithin(
    tx: Queryable,
    ref: StreamRef,
    entries: readonly NewEntry[],
    expected: Expectation = {},
  ): Promise<Appended[]> {
    const stream = resolve(ref);
    const prepared = entries.map((entry) => this.#prepare(stream, entry));
    if (prepared.length === 0) return [];
    const { distinct, indexOf } = byKey(prepared);
    for (const { key, digest } of prepared)
      if (distinct[indexOf.get(key) ?? 0]?.digest !== digest) throw conflict(stream.name, key);
    try {
      const appended = await logAppend(tx, {
        ...argumentsOf(stream, distinct),
        strict: true,
        careful: false,
        epoch: expected.epoch ?? null,
        expected: expected.offset ?? null,
      });
      return answersFor(stream.name, prepared, indexOf, placesOf(distinct, appended)) as Appended[];
    } catch (error) {
      throw explained(error, stream.name);
    }
  }

  /** Wakes readers of the stream, after the commit of an `appendWithin`. */
  grew(ref: StreamRef): void {
    this.#watch.grew(resolve(ref).id);
  }

  /**
   * Entries after an offset, in order. Offsets are dense: should the first one not be `after + 1`, what lay between was
   * trimmed, or a new epoch has begun.
   */
  async read(ref: StreamRef, options: ReadOptions = {}): Promise<LogEntry[]> {
    const { after = 0, limit = 100, maxBytes = Number.MAX_SAFE_INTEGER, waitMs = 0, signal } = options;
    const stream = resolve(ref);
    requireWhole(after, 'after', 0, Number.MAX_SAFE_INTEGER);
    requireWhole(limit, 'limit', 1, 100_000);
    requireWhole(maxBytes, 'maxBytes', 1, Number.MAX_SAFE_INTEGER);
    requireWhole(waitMs, 'waitMs', 0, 600_000);
    const look = () => read.entries(this.#database, stream, { after, limit, maxBytes });
    if (waitMs === 0) return look();
    return lookUntilGrown(look, { waitMs, signal }, (ended) => this.#watch.await(stream.id, ended));
  }

  /** Where a key is, also when its entry was trimmed long ago. */
  find(ref: StreamRef, key: string): Promise<FoundKey | undefined> {
    const { keyPrefix } = resolve(ref);
    return read.byKeyHash(this.#database, keyHashOf(keyPrefix, key));
  }

  async head(ref: StreamRef): Promise<Head> {
    const stream = await this.stream(ref);
    return stream ? { first: stream.first, last: stream.last } : { first: 1, last: 0 };
  }

  stream(ref: StreamRef): Promise<StreamInfo | undefined> {
    return read.streamInfo(this.#database, resolve(ref));
  }

  /** The streams of a tenant by name, at most `limit` (default 100) after a name. */
  streams(
    options: { readonly tenantId?: string; readonly after?: string; readonly limit?: number } = {},
  ): Promise<StreamInfo[]> {
    const { tenantId = 'default', after = '', limit = 100 } = options;
    requireWhole(limit, 'limit', 1, 10_000);
    return read.streamInfos(this.#database, { tenantId, after, limit });
  }

  /** The first offset that was appended at this time or later; one above the last if there is none. */
  async offsetAt(ref: StreamRef, at: Date): Promise<number> {
    const id = await read.streamId(this.#database, resolve(ref));
    return id === undefined ? 1 : logOffsetAt(this.#database, { stream: id, at: at.toISOString() });
  }

  /**
   * Drops the entries up to and including an offset and returns how many. Their keys stay forever, and offsets continue
   * as before. Works in batches; appenders do not wait for it.
   */
  async trim(ref: StreamRef, upToOffset: number): Promise<number> {
    requireWhole(upToOffset, 'upToOffset', 0, Number.MAX_SAFE_INTEGER);
    return trim(this.#database, resolve(ref), upToOffset);
  }

  /** Deletes a stream with its entries and keys. A stream of that name can be made again; it has another epoch. */
  deleteStream(ref: StreamRef): Promise<boolean> {
    return deleteStream(this.#database, resolve(ref));
  }

  /**
   * Starts a new epoch, so that readers elsewhere can tell offsets that are issued from now on from those they have seen:
   * after a restore from a backup. Offsets continue from `nextOffset` if that is higher.
   */
  async newEpoch(ref: StreamRef, nextOffset = 1): Promise<string> {
    const stream = resolve(ref);
    const id = await read.streamId(this.#database, stream);
    if (id === undefined) throw new TallymanError('STREAM_NOT_FOUND', `there is no stream "${stream.name}"`);
    return logNewEpoch(this.#database, { stream: id, nextOffset });
  }

  /** Ends waiting reads and the connection that wakes them. */
  stop(): Promise<void> {
    return this.#watch.stop();
  }

  async #submit(stream: ResolvedStream, entry: NewEntry, turn?: Turn): Promise<Appended> {
    const prepared = this.#prepare(stream, entry);
    const held = turn?.sequence.heldBack(turn.n);
    if (held) throw held;
    if (this.#waitingBytes > 0 && this.#waitingBytes + prepared.bytes > this.#maxWaitingBytes) {
      turn?.sequence.stop(turn.n, prepared.key);
      throw new TallymanError(
        'LOG_BUSY',
        `${this.#waitingBytes} bytes wait to be appended; the limit is ${this.#maxWaitingBytes}. Nothing was written: ` +
          'append again when earlier calls have resolved.',
      );
    }
    const line = this.#lines.get(stream.id) ?? this.#newLine(stream);
    line.callers += 1;
    this.#waitingBytes += prepared.bytes;
    try {
      return await line.batcher.add(turn ? { ...prepared, turn } : prepared);
    } finally {
      this.#waitingBytes -= prepared.bytes;
    }
  }

  #prepare({ keyPrefix }: ResolvedStream, entry: NewEntry): Prepared {
    return prepare(entry, { keyPrefix, maxPayloadBytes: this.#maxPayloadBytes });
  }

  #newLine(stream: ResolvedStream): Line {
    const line: Line = {
      // One batch in flight: a second would only wait for the stream's lock, and the order of the calls would be lost.
      batcher: new Batcher({
        send: (entries) => this.#sendAll(stream, line, entries),
        maxBatch: mostInABatch,
        maxInFlight: 1,
      }),
      callers: 0,
      careful: false,
    };
    this.#lines.set(stream.id, line);
    return line;
  }

  async #sendAll(stream: ResolvedStream, line: Line, entries: Queued[]): Promise<Answer[]> {
    const answers: Answer[] = [];
    for (const batch of batchesOf(entries))
      answers.push(...(await sendPart(batch, (part) => this.#send(stream, line, part))));
    this.#watch.grew(stream.id);
    line.callers -= entries.length;
    if (line.callers === 0) this.#lines.delete(stream.id);
    return answers;
  }

  /** Never rejects: an error is the answer for the callers that it concerns. */
  async #send(stream: ResolvedStream, line: Line, entries: Queued[], again = false): Promise<Answer[]> {
    const { distinct, indexOf } = byKey(entries);
    try {
      const appended = await logAppend(this.#database, {
        ...argumentsOf(stream, distinct),
        strict: false,
        careful: line.careful,
        epoch: null,
        expected: null,
      });
      line.careful = appended.taken.length > 0;
      if (!line.careful && distinct.length === entries.length)
        return entries.map((_, i) => ({ offset: appended.first + i, existing: false }));
      return answersFor(stream.name, entries, indexOf, placesOf(distinct, appended));
    } catch (error) {
      // The commit may have happened; the keys make it safe to ask again.
      if (isConnectionError(error) && !again) return this.#send(stream, line, entries, true);
      if (!isRefusal(error) || entries.length === 1)
        return entries.map(() => explained(error, stream.name) as Error);
      // One of them is the cause, and only that one must fail.
      const answers: Answer[] = [];
      for (const entry of entries)
        answers.push(...(await sendPart([entry], (part) => this.#send(stream, line, part))));
      return answers;
    }
  }
}

const argumentsOf = (stream: ResolvedStream, entries: readonly Prepared[]) => ({
  tenant: stream.tenantId,
  stream: stream.name,
  keySpace: stream.keySpace,
  keyHashes: `{${entries.map((entry) => entry.keyHash).join(',')}}` as const,
  keys: entries.map((entry) => entry.key),
  hashes: entries.map((entry) => entry.digest + entry.payloadHash).join(''),
  bytes: `{${entries.map((entry) => entry.bytes).join(',')}}` as const,
  payloads: entries.map((entry) => entry.payload).join('\n'),
});

/** What SQL raises, in the words of the interface. */
function explained(error: unknown, stream: string): unknown {
  const message = error instanceof Error ? error.message : String(error);
  switch (codeOf(error)) {
    case logErrors.keyConflict:
      return conflict(stream, undefined, error);
    case logErrors.streamDeleted:
      return new TallymanError('STREAM_DELETED', `${message}. Append to it when that is done.`, {
        cause: error,
      });
    case logErrors.otherKeySpace:
      return new TallymanError('BAD_OPTION', `${message}. The key space of a stream never changes.`, {
        cause: error,
      });
    case logErrors.otherEpoch:
    case logErrors.otherOffset:
      return new TallymanError('UNEXPECTED_OFFSET', `${message}. Nothing was appended.`, { cause: error });
    default:
      return error;
  }
}
