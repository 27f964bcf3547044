/**
 * Facts that a consumer could not handle, kept in a SQLite file beside it until somebody has looked: the consumer goes on
 * without them, and none is lost. What is parked is durable before the consumer confirms it.
 */
import type { DatabaseSync } from 'node:sqlite';
import { messageOf } from '../../../../engine/errors.ts';
import type { ReceivedFact } from './received.ts';

export interface PoisonFact {
  readonly consumer: string;
  readonly fact: ReceivedFact;
  /** What the handler threw last. */
  readonly error: string;
  readonly attempts: number;
}

export interface ParkedPoison extends PoisonFact {
  readonly id: number;
  readonly parkedAt: Date;
}

interface Row {
  readonly id: number;
  readonly consumer: string;
  readonly fact: string;
  readonly error: string;
  readonly attempts: number;
  readonly parked_at: number;
}

/** The same fact may come again, after a crash between parking and confirming: it is parked once. */
const schema = `
  create table if not exists parked (
    id        integer primary key autoincrement,
    consumer  text not null,
    from_zone text not null,
    to_zone   text not null,
    epoch     text not null,
    "offset"  integer not null,
    fact      text not null,
    error     text not null,
    attempts  integer not null,
    parked_at integer not null,
    unique (consumer, from_zone, to_zone, epoch, "offset")
  ) strict`;

export class ParkedFacts {
  readonly #db: DatabaseSync;

  /** Several consumers and processes may have it open. */
  static async open(path: string): Promise<ParkedFacts> {
    const { DatabaseSync } = await import('node:sqlite');
    const db = new DatabaseSync(path, { timeout: 10_000 });
    try {
      db.exec(`pragma journal_mode = wal; pragma synchronous = full; ${schema}`);
      return new ParkedFacts(db);
    } catch (error) {
      db.close();
      throw error;
    }
  }

  private constructor(db: DatabaseSync) {
    this.#db = db;
  }

  /** Returns when it is durable. */
  park({ consumer, fact, error, attempts }: PoisonFact, now = Date.now()): void {
    this.#db
      .prepare(
        `insert into parked (consumer, from_zone, to_zone, epoch, "offset", fact, error, attempts, parked_at)
         values (?, ?, ?, ?, ?, ?, ?, ?, ?)
         on conflict do update set error = excluded.error, attempts = excluded.attempts`,
      )
      .run(
        consumer,
        fact.fromZone,
        fact.toZone,
        fact.epoch,
        fact.offset,
        JSON.stringify(fact),
        error,
        attempts,
        now,
      );
  }

  /** In the order in which they were parked; the next page begins after the last id. */
  list({
    after = 0,
    limit = 100,
  }: {
    readonly after?: number;
    readonly limit?: number;
  } = {}): ParkedPoison[] {
    const rows = this.#db
      .prepare('select * from parked where id > ? order by id limit ?')
      .all(after, limit) as unknown[] as Row[];
    return rows.map(({ id, consumer, fact, error, attempts, parked_at }) => ({
      id,
      consumer,
      fact: revived(fact),
      error,
      attempts,
      parkedAt: new Date(parked_at),
    }));
  }

  /**
   * Gives a parked fact to a handler again. If it succeeds the fact is removed; if it throws it stays, with the new error, and
   * the error is thrown.
   */
  async retry(id: number, handler: (fact: ReceivedFact) => unknown): Promise<void> {
    const [parked] = this.list({ after: id - 1, limit: 1 });
    if (parked?.id !== id) throw new Error(`there is no parked fact ${id}`);
    try {
      await handler(parked.fact);
    } catch (error) {
      this.#db
        .prepare('update parked set error = ?, attempts = attempts + 1 where id = ?')
        .run(messageOf(error), id);
      throw error;
    }
    this.drop(id);
  }

  /** False: there was none. */
  drop(id: number): boolean {
    return Number(this.#db.prepare('delete from parked where id = ?').run(id).changes) > 0;
  }

  close(): void {
    if (this.#db.isOpen) this.#db.close();
  }
}

function revived(text: string): ReceivedFact {
  const fact = JSON.parse(text) as ReceivedFact;
  return { ...fact, producedAt: new Date(fact.producedAt), acceptedAt: new Date(fact.acceptedAt) };
}
