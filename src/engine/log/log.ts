import { hash } from 'node:crypto';
import { Batcher } from '../batching/batcher.ts';
import { type Database, isConnectionError, type Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import { type AppendedRow, keyConflict, logAppend } from '../sql/log-append.ts';
import { logTrim } from '../sql/log-trim.ts';
import { requireText, requireWhole } from '../validate.ts';

export interface NewEntry {
  /** Identifies the entry forever: appending it again returns the first offset and adds nothing. */
  readonly key: string;
  /** Any JSON value. */
  readonly payload: unknown;
  /**
   * What makes two entries of one key the same. Default: the SHA-256 of the payload's JSON text, in which the order of
   * an object's members counts.
   */
  readonly digest?: string;
}

export interface Appended {
  readonly offset: number;
  /**
   * True when the key was there. Also after a connection was lost during the commit and the entry turned out to be in:
   * a caller may learn late, never wrongly, where its entry is.
   */
  readonly existing: boolean;
}

export interface LogEntry {
  readonly offset: number;
  readonly key: string;
  readonly digest: string;
  readonly appendedAt: Date;
  readonly payload: unknown;
}

/** A key that is known; its entry, unless that was trimmed. */
export interface FoundKey {
  readonly offset: number;
  readonly digest: string;
  readonly entry: LogEntry | undefined;
}

export interface Head {
  /** The first offset that was not trimmed. */
  readonly first: number;
  /** The last offset; 0 when nothing was ever appended. */
  readonly last: number;
}

export interface LogOptions {
  /** Default 1 MiB. */
  readonly maxPayloadBytes?: number;
}

/** An entry as it goes to SQL. */
interface Prepared {
  readonly key: string;
  readonly digest: string;
  /** JSON text. */
  readonly payload: string;
}

type Answer = Appended | Error;

interface Line {
  readonly batcher: Batcher<Prepared, Appended>;
  /** Callers without an answer; a line without any is deleted. */
  callers: number;
  /** The last batch met keys that were taken, so the next one may. */
  careful: boolean;
}

/** Relies on log_entries_pkey. */
const logRead = {
  name: 'tm_log_read',
  text: `select e."offset", e.key, e.digest, extract(epoch from e.appended_at) * 1000, e.payload
           from tallyman.log_entries e
          where e.stream = (select s.id from tallyman.log_streams s where s.name = $1) and e."offset" > $2
          order by e."offset" limit $3`,
};

/** Relies on log_entries_key and log_keys_pkey. One statement, so that a key is not missed while it moves from one to the other. */
const logFind = {
  name: 'tm_log_find',
  text: `with s as materialized (select id from tallyman.log_streams where name = $1)
         select e."offset", e.key, e.digest, extract(epoch from e.appended_at) * 1000, e.payload
           from tallyman.log_entries e where e.key = $2 and e.stream + 0 = (select id from s)
         union all
         select k."offset", k.key, k.digest, null, null
           from tallyman.log_keys k where k.stream = (select id from s) and k.key = $2`,
};

const logHead = {
  name: 'tm_log_head',
  text: 'select first_offset, next_offset - 1 from tallyman.log_streams where name = $1',
};

const mostInABatch = 1000;
/** One statement carries no more JSON than this (more only where a single payload is larger). */
const mostTextInABatch = 4 * 1024 * 1024;
/** Entries per batch. A batch delays appenders of the stream by some milliseconds. */
const trimBite = 2000;

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
  readonly #lines = new Map<string, Line>();

  constructor(database: Database, options: LogOptions = {}) {
    this.#database = database;
    this.#maxPayloadBytes = options.maxPayloadBytes ?? 1024 * 1024;
  }

  /**
   * Appends the entry if its key is new; resolves when it is durable. Concurrent callers share a commit. Entries that one
   * process appends to a stream get their offsets in the order of the calls.
   *
   * The same key with other content is refused (CONFLICTING_DUPLICATE); the others of the commit do not notice.
   */
  async append(stream: string, entry: NewEntry): Promise<Appended> {
    const prepared = this.#prepare(entry);
    const line = this.#lines.get(stream) ?? this.#newLine(stream);
    line.callers += 1;
    return line.batcher.add(prepared);
  }

  /**
   * Appends as part of the caller's transaction, all of the entries or none: a conflict aborts the transaction.
   *
   * From here to its end the transaction holds the stream's lock, and every other appender waits; append last, and to
   * several streams in sorted order, so that two writers cannot deadlock.
   */
  async appendWithin(tx: Queryable, stream: string, entries: readonly NewEntry[]): Promise<Appended[]> {
    requireText(stream, 'stream', 256);
    const prepared = entries.map((entry) => this.#prepare(entry));
    if (prepared.length === 0) return [];
    const { distinct, indexOf } = byKey(prepared);
    for (const { key, digest } of prepared)
      if (distinct[indexOf.get(key) ?? 0]?.digest !== digest) throw conflict(stream, key);
    try {
      const appended = await logAppend(tx, {
        ...argumentsOf(stream, distinct),
        strict: true,
        careful: false,
      });
      const places = placesOf(distinct, appended);
      return answersFor(stream, prepared, indexOf, places) as Appended[];
    } catch (error) {
      if ((error as { code?: string }).code !== keyConflict) throw error;
      throw conflict(stream, undefined, error);
    }
  }

  /**
   * Entries after an offset, in order, at most `limit` (default 100). Offsets are dense: should the first one not be
   * `after + 1`, what lay between was trimmed.
   */
  async read(stream: string, options: { after?: number; limit?: number } = {}): Promise<LogEntry[]> {
    const { after = 0, limit = 100 } = options;
    requireWhole(after, 'after', 0, Number.MAX_SAFE_INTEGER);
    requireWhole(limit, 'limit', 1, 100_000);
    const rows = await this.#database.run(logRead, [stream, after, limit]);
    return rows.map(toEntry);
  }

  /** Where a key is, also when its entry was trimmed long ago. */
  async find(stream: string, key: string): Promise<FoundKey | undefined> {
    const [row] = await this.#database.run(logFind, [stream, key]);
    if (!row) return undefined;
    const trimmed = row[4] === null;
    return { offset: Number(row[0]), digest: row[2] ?? '', entry: trimmed ? undefined : toEntry(row) };
  }

  async head(stream: string): Promise<Head> {
    const [row] = await this.#database.run(logHead, [stream]);
    return row ? { first: Number(row[0]), last: Number(row[1]) } : { first: 1, last: 0 };
  }

  /**
   * Drops the entries up to and including an offset and returns how many. Their keys stay forever, and offsets continue
   * as before. Works in batches, each in its own commit.
   */
  async trim(stream: string, upToOffset: number): Promise<number> {
    requireWhole(upToOffset, 'upToOffset', 0, Number.MAX_SAFE_INTEGER);
    for (let dropped = 0; ; ) {
      const bite = await logTrim(this.#database, { stream, upTo: upToOffset, limit: trimBite });
      if (bite === 0) return dropped;
      dropped += bite;
    }
  }

  #prepare({ key, payload, digest }: NewEntry): Prepared {
    if (!ordinaryKey.test(key)) {
      requireText(key, 'key', 512);
      // A lone surrogate is not written as it is: two keys would become one.
      if (!key.isWellFormed()) throw new TallymanError('BAD_OPTION', 'key is not well-formed Unicode');
    }
    if (digest !== undefined) requireText(digest, 'digest', 256);
    const text = JSON.stringify(payload);
    if (text === undefined)
      throw new TallymanError('VALIDATION_ERROR', `payload of entry "${key}" cannot be written as JSON`);
    if (text.length * 3 > this.#maxPayloadBytes && Buffer.byteLength(text) > this.#maxPayloadBytes)
      throw new TallymanError(
        'PAYLOAD_TOO_LARGE',
        `payload of entry "${key}" has ${Buffer.byteLength(text)} bytes; the limit is ${this.#maxPayloadBytes}. Store it elsewhere and append a reference.`,
      );
    return { key, digest: digest ?? hash('sha256', text, 'base64url'), payload: text };
  }

  #newLine(stream: string): Line {
    requireText(stream, 'stream', 256);
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
    this.#lines.set(stream, line);
    return line;
  }

  async #sendAll(stream: string, line: Line, entries: Prepared[]): Promise<Answer[]> {
    const answers: Answer[] = [];
    for (const bite of bites(entries)) answers.push(...(await this.#send(stream, line, bite)));
    line.callers -= entries.length;
    if (line.callers === 0) this.#lines.delete(stream);
    return answers;
  }

  /** Never rejects: an error is the answer for the callers that it concerns. */
  async #send(stream: string, line: Line, entries: Prepared[], again = false): Promise<Answer[]> {
    const { distinct, indexOf } = byKey(entries);
    try {
      const args = { ...argumentsOf(stream, distinct), strict: false, careful: line.careful };
      const appended = await logAppend(this.#database, args);
      line.careful = appended.taken.length > 0;
      if (!line.careful && distinct.length === entries.length)
        return entries.map((_, i) => ({ offset: appended.first + i, existing: false }));
      return answersFor(stream, entries, indexOf, placesOf(distinct, appended));
    } catch (error) {
      // The commit may have happened; the keys make it safe to ask again.
      if (isConnectionError(error) && !again) return this.#send(stream, line, entries, true);
      if (!isRefusal(error) || entries.length === 1) return entries.map(() => error as Error);
      // One of them is the cause, and only that one must fail.
      const answers: Answer[] = [];
      for (const entry of entries) answers.push(...(await this.#send(stream, line, [entry])));
      return answers;
    }
  }
}

/** Keys as nearly all are, for which nothing else need be looked at. */
const ordinaryKey = /^[\x20-\x7e]{1,512}$/;

const argumentsOf = (stream: string, entries: readonly Prepared[]) => ({
  stream,
  keys: entries.map((entry) => entry.key),
  digests: entries.map((entry) => entry.digest),
  payloads: entries.map((entry) => entry.payload).join('\n'),
});

/** The first entry of each key, and where it stands. */
function byKey(entries: readonly Prepared[]): { distinct: Prepared[]; indexOf: Map<string, number> } {
  const indexOf = new Map<string, number>();
  const distinct = entries.filter(({ key }) => {
    if (indexOf.has(key)) return false;
    indexOf.set(key, indexOf.size);
    return true;
  });
  return { distinct, indexOf };
}

interface Place {
  readonly offset: number;
  readonly digest: string;
  /** Set once an answer was given for the entry that was added. */
  existing: boolean;
}

/** New entries lie one after another from `first` on; for the others SQL says where they have been. */
function placesOf(distinct: readonly Prepared[], { first, taken }: AppendedRow): Place[] {
  const known = new Map(taken.map((place) => [place[0], place]));
  let next = first;
  return distinct.map(({ digest }, i) => {
    const place = known.get(i + 1);
    if (place) return { offset: place[1], digest: place[2], existing: true };
    next += 1;
    return { offset: next - 1, digest, existing: false };
  });
}

/** Several callers may have come with one key; each is judged against what the log holds now. */
function answersFor(
  stream: string,
  entries: readonly Prepared[],
  indexOf: ReadonlyMap<string, number>,
  places: readonly Place[],
): Answer[] {
  return entries.map(({ key, digest }) => {
    const place = places[indexOf.get(key) ?? -1];
    if (place?.digest !== digest) return conflict(stream, key);
    const answer = { offset: place.offset, existing: place.existing };
    place.existing = true;
    return answer;
  });
}

function* bites(entries: Prepared[]): Generator<Prepared[]> {
  let bite: Prepared[] = [];
  let size = 0;
  for (const entry of entries) {
    if (bite.length > 0 && size + entry.payload.length > mostTextInABatch) {
      yield bite;
      bite = [];
      size = 0;
    }
    bite.push(entry);
    size += entry.payload.length;
  }
  yield bite;
}

function toEntry([offset, key, digest, appendedAt, payload]: readonly (string | null)[]): LogEntry {
  return {
    offset: Number(offset),
    key: key ?? '',
    digest: digest ?? '',
    appendedAt: new Date(Number(appendedAt)),
    payload: JSON.parse(payload ?? 'null'),
  };
}

/** Errors about the data of a statement: bad values (22), violated constraints (23), limits such as nesting (54). */
const isRefusal = (error: unknown): boolean => /^(22|23|54)/.test((error as { code?: string }).code ?? '');

function conflict(stream: string, key: string | undefined, cause?: unknown): TallymanError {
  const message =
    key === undefined && cause instanceof Error
      ? cause.message
      : `key "${key}" of stream "${stream}" was appended before with other content`;
  return new TallymanError(
    'CONFLICTING_DUPLICATE',
    `${message}. An entry never changes: give what is new a key of its own.`,
    { cause, details: { stream, ...(key !== undefined && { key }) } },
  );
}
