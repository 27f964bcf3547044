/**
 * The outbox of a producer: one SQLite file, with facts in the order in which they were appended. What a transaction here has
 * committed survives a crash of the process and of the machine (WAL, synchronous=FULL).
 *
 * One process has the file at a time. The lock is the operating system's: it ends with the process, however that ends.
 */
import { open } from 'node:fs/promises';
import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { BoundaryError } from '../../domain/errors.ts';
import type { FactInput } from '../../domain/fact.ts';
import type { PreparedFact } from '../fact.ts';
import type { StoredObject } from '../objects.ts';

export interface NewFact extends PreparedFact {
  /** Its bytes are kept beside the file until the fact is delivered. */
  readonly object: StoredObject | undefined;
}

export interface WaitingFact {
  readonly seq: number;
  readonly messageId: string;
  readonly input: FactInput;
  readonly object: StoredObject | undefined;
}

/** A fact that the node refused for what it is. It stays here until it is sent again or dropped. */
export interface ParkedFact extends WaitingFact {
  /** Stable, such as `conflicting_duplicate`. */
  readonly reason: string;
  readonly message: string;
  readonly parkedAt: Date;
}

export interface Refused {
  readonly seq: number;
  readonly reason: string;
  readonly message: string;
}

export interface OutboxFileOptions {
  readonly path: string;
  /** The slug. An outbox belongs to one zone: message ids are unique there. */
  readonly fromZone: string;
  readonly maxBytes: number;
}

/** `TBOX` */
const applicationId = 0x54424f58;
const busy = 5;
const full = 13;

const schema = `
  create table about (name text primary key, value text not null) strict;
  -- Numbers are never given again: a fact that is parked and sent again goes to its old place.
  create table facts (
    seq           integer primary key autoincrement,
    to_zone       text not null,
    message_id    text not null unique,
    content       text not null,
    request       text not null,
    bytes         integer not null,
    object_digest text,
    object_size   integer,
    reason        text,
    message       text,
    parked_at     integer
  ) strict;
  create index facts_waiting on facts (to_zone, seq) where parked_at is null;
  create index facts_objects on facts (object_digest) where object_digest is not null;
  pragma application_id = ${applicationId};
  pragma user_version = 1`;

interface Row {
  readonly seq: number;
  readonly message_id: string;
  readonly request: string;
  readonly object_digest: string | null;
  readonly object_size: number | null;
  readonly reason: string | null;
  readonly message: string | null;
  readonly parked_at: number | null;
}

export class OutboxFile {
  readonly #path: string;
  readonly #db: DatabaseSync;
  readonly #maxBytes: number;
  #bytes: number;

  static async open(options: OutboxFileOptions): Promise<OutboxFile> {
    const { path, fromZone } = options;
    // Facts are nobody else's business. Fails without opening it if it is there: to close it would end our own lock.
    await open(path, 'wx', 0o600).then(
      (made) => made.close(),
      (error: NodeJS.ErrnoException) => (error.code === 'EEXIST' ? undefined : Promise.reject(error)),
    );
    const { DatabaseSync } = await import('node:sqlite');
    const db = new DatabaseSync(path, { timeout: 0 });
    try {
      db.exec('pragma locking_mode = exclusive; pragma journal_mode = wal; pragma synchronous = full');
      db.exec('pragma journal_size_limit = 67108864; begin exclusive');
      prepareSchema(db, path, fromZone);
      db.exec('commit');
      return new OutboxFile(options, db);
    } catch (error) {
      db.close();
      throw explained(error, path);
    }
  }

  private constructor({ path, maxBytes }: OutboxFileOptions, db: DatabaseSync) {
    this.#path = path;
    this.#db = db;
    this.#maxBytes = maxBytes;
    this.#bytes = this.#number('select coalesce(sum(bytes), 0) as n from facts');
  }

  /** Of all facts here and their objects, parked ones included. */
  get bytes(): number {
    return this.#bytes;
  }

  get room(): number {
    return Math.max(0, this.#maxBytes - this.#bytes);
  }

  /**
   * Adds facts in one durable commit. An answer for each: true if it is new, false if it was here, or why it cannot be taken.
   * If the commit fails, none of them is here, and it throws.
   */
  add(facts: readonly NewFact[]): (boolean | BoundaryError)[] {
    let added = 0;
    const answers = this.#commit(() =>
      facts.map((fact) => {
        const answer = this.#addOne(fact, added);
        if (answer === true) added += bytesOf(fact);
        return answer;
      }),
    );
    this.#bytes += added;
    return answers;
  }

  #addOne(fact: NewFact, added: number): boolean | BoundaryError {
    const { input, contentDigest, toZone, object } = fact;
    const { messageId } = input;
    const known = this.#row<{ content: string; parked_at: number | null }>(
      'select content, parked_at from facts where message_id = ?',
      messageId,
    );
    if (known) return known.content === contentDigest ? false : conflict(messageId, known.parked_at !== null);
    const bytes = bytesOf(fact);
    if (this.#bytes + added + bytes > this.#maxBytes) return this.fullError();
    this.#run(
      `insert into facts (to_zone, message_id, content, request, bytes, object_digest, object_size)
       values (?, ?, ?, ?, ?, ?, ?)`,
      toZone,
      messageId,
      contentDigest,
      JSON.stringify(input),
      bytes,
      object?.digest ?? null,
      object?.size ?? null,
    );
    return true;
  }

  fullError(cause?: unknown): BoundaryError {
    return new BoundaryError(
      'RESOURCE_EXHAUSTED',
      'outbox_full',
      `the outbox ${this.#path} holds ${this.#bytes} bytes, and its limit is ${this.#maxBytes}: the fact was not taken. ` +
        'It takes facts again when the node can be reached, or when parked facts are dropped.',
      cause === undefined ? {} : { cause },
    );
  }

  /** The first facts to a zone, in order: as many as fit, at least one. Relies on facts_waiting. */
  waiting(
    toZone: string,
    limits: { readonly facts: number; readonly bytes: number; readonly objects: number },
  ): WaitingFact[] {
    const sizes = this.#rows<{ seq: number; length: number; object_digest: string | null }>(
      `select seq, octet_length(request) as length, object_digest from facts
        where to_zone = ? and parked_at is null order by seq limit ?`,
      toZone,
      limits.facts,
    );
    let bytes = 0;
    let objects = 0;
    let last = 0;
    for (const { seq, length, object_digest } of sizes) {
      bytes += length;
      objects += object_digest === null ? 0 : 1;
      if (last > 0 && (bytes > limits.bytes || objects > limits.objects)) break;
      last = seq;
    }
    return this.#rows<Row>(
      'select * from facts where to_zone = ? and parked_at is null and seq <= ? order by seq',
      toZone,
      last,
    ).map(toWaiting);
  }

  /** Removes what was delivered, and parks what was refused, in one commit. */
  settle(delivered: readonly number[], refused: readonly Refused[], now = Date.now()): void {
    if (delivered.length === 0 && refused.length === 0) return;
    let freed = 0;
    this.#commit(() => {
      for (const seq of delivered)
        freed +=
          this.#row<{ bytes: number }>('delete from facts where seq = ? returning bytes', seq)?.bytes ?? 0;
      for (const { seq, reason, message } of refused)
        this.#run(
          'update facts set reason = ?, message = ?, parked_at = ? where seq = ?',
          reason,
          message,
          now,
          seq,
        );
    });
    this.#bytes -= freed;
  }

  /** Parked facts after a place, in order. */
  parked({ after, limit }: { readonly after: number; readonly limit: number }): ParkedFact[] {
    return this.#rows<Row>(
      'select * from facts where parked_at is not null and seq > ? order by seq limit ?',
      after,
      limit,
    ).map((row) => ({
      ...toWaiting(row),
      reason: row.reason ?? '',
      message: row.message ?? '',
      parkedAt: new Date(row.parked_at ?? 0),
    }));
  }

  /** Puts parked facts back to their places: one, or all. Returns how many. */
  unpark(messageId: string | undefined): number {
    const back =
      'update facts set reason = null, message = null, parked_at = null where parked_at is not null';
    return this.#commit(
      () =>
        (messageId === undefined
          ? this.#rows(`${back} returning seq`)
          : this.#rows(`${back} and message_id = ? returning seq`, messageId)
        ).length,
    );
  }

  /** Parks a fact that waits. */
  setAside(messageId: string, reason: string, message: string): boolean {
    const found = this.#row<{ seq: number }>(
      'select seq from facts where message_id = ? and parked_at is null',
      messageId,
    );
    if (found) this.settle([], [{ seq: found.seq, reason, message }]);
    return found !== undefined;
  }

  /** Deletes a parked fact for good, and returns it. */
  drop(messageId: string): WaitingFact | undefined {
    const row = this.#row<Row>(
      'select * from facts where message_id = ? and parked_at is not null',
      messageId,
    );
    if (!row) return undefined;
    this.settle([row.seq], []);
    return toWaiting(row);
  }

  /** The zones that facts wait for. */
  zones(): string[] {
    return this.#rows<{ to_zone: string }>(
      'select distinct to_zone from facts where parked_at is null order by to_zone',
    ).map(({ to_zone }) => to_zone);
  }

  waitingCount(toZone: string): number {
    return this.#number('select count(*) as n from facts where to_zone = ? and parked_at is null', toZone);
  }

  parkedCount(): number {
    return this.#number('select count(*) as n from facts where parked_at is not null');
  }

  /** The place of the first fact that waits; undefined if none does. */
  firstWaiting(): number | undefined {
    return this.#row<{ seq: number }>('select seq from facts where parked_at is null order by seq limit 1')
      ?.seq;
  }

  /** The highest place that was ever given. */
  last(): number {
    return this.#number(`select coalesce(max(seq), 0) as n from sqlite_sequence where name = 'facts'`);
  }

  /** Whether a fact here needs these bytes. Relies on facts_objects. */
  needsObject(digest: string): boolean {
    return this.#row('select 1 from facts where object_digest = ? limit 1', digest) !== undefined;
  }

  get isOpen(): boolean {
    return this.#db.isOpen;
  }

  close(): void {
    if (this.isOpen) this.#db.close();
  }

  #commit<T>(work: () => T): T {
    try {
      this.#db.exec('begin immediate');
      const result = work();
      this.#db.exec('commit');
      return result;
    } catch (error) {
      if (this.#db.isOpen && this.#db.isTransaction) this.#db.exec('rollback');
      throw errorCode(error) === full ? this.fullError(error) : error;
    }
  }

  #run(sql: string, ...values: SQLInputValue[]): void {
    this.#db.prepare(sql).run(...values);
  }

  #rows<R>(sql: string, ...values: SQLInputValue[]): R[] {
    return this.#db.prepare(sql).all(...values) as unknown[] as R[];
  }

  #row<R>(sql: string, ...values: SQLInputValue[]): R | undefined {
    return this.#db.prepare(sql).get(...values) as unknown as R | undefined;
  }

  #number(sql: string, ...values: SQLInputValue[]): number {
    return this.#row<{ n: number }>(sql, ...values)?.n ?? 0;
  }
}

function prepareSchema(db: DatabaseSync, path: string, fromZone: string): void {
  const { application_id: id } = db.prepare('pragma application_id').get() as { application_id: number };
  const { user_version: version } = db.prepare('pragma user_version').get() as { user_version: number };
  const { n: tables } = db.prepare('select count(*) as n from sqlite_schema').get() as { n: number };
  if (id !== applicationId && tables > 0)
    throw refused('not_an_outbox', `${path} is a database of something else, and no outbox`);
  if (version > 1)
    throw refused('newer_outbox', `the outbox ${path} was written by a newer version: upgrade this program`);
  if (tables === 0) {
    db.exec(schema);
    db.prepare(`insert into about values ('from_zone', ?)`).run(fromZone);
  }
  const about = db.prepare(`select value from about where name = 'from_zone'`).get() as
    | { value: string }
    | undefined;
  if (about?.value !== fromZone)
    throw refused('other_zone', `the outbox ${path} belongs to zone "${about?.value}", not to "${fromZone}"`);
}

const bytesOf = ({ input, object }: NewFact): number =>
  Buffer.byteLength(JSON.stringify(input)) + (object?.size ?? 0);

const toWaiting = (row: Row): WaitingFact => ({
  seq: row.seq,
  messageId: row.message_id,
  input: JSON.parse(row.request) as FactInput,
  object: row.object_digest === null ? undefined : { digest: row.object_digest, size: row.object_size ?? 0 },
});

const conflict = (messageId: string, isParked: boolean): BoundaryError =>
  new BoundaryError(
    'ALREADY_EXISTS',
    'conflicting_duplicate',
    `message id "${messageId}" is in the outbox with other content${isParked ? ', parked' : ''}. A fact never changes: ` +
      `give a new fact an id of its own${isParked ? ', or drop the parked one first' : ''}.`,
  );

function explained(error: unknown, path: string): unknown {
  if (errorCode(error) !== busy) return error;
  return new BoundaryError(
    'FAILED_PRECONDITION',
    'outbox_in_use',
    `the outbox ${path} is in use by another process, or another producer of this one: give each an outbox of its own`,
    { cause: error },
  );
}

/** What SQLite calls its primary result code. */
const errorCode = (error: unknown): number => Number((error as { errcode?: number }).errcode ?? 0) & 0xff;

const refused = (reason: string, message: string): BoundaryError =>
  new BoundaryError('FAILED_PRECONDITION', reason, message);
