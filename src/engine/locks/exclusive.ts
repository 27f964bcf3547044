import type pg from 'pg';
import { collectHints, endHints } from '../database/after-commit.ts';
import type { Database, Queryable } from '../database/database.ts';
import { detectPooler } from '../database/pooler.ts';
import { announcedPid } from '../database/session.ts';
import { messageOf, TallymanError } from '../errors.ts';
import { within } from '../resilience/deadline.ts';

/** Where transactions run: a database, or the inside of an exclusive section. */
export interface Transactor {
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T>;
}

export interface Section extends Transactor {
  /** Fires when the connection, and with it the lock, is lost; also when the caller's signal fires. */
  readonly signal: AbortSignal;
  /** Runs on the connection that holds the lock, one at a time: a process that lost the lock cannot commit. */
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T>;
}

export interface ExclusiveOptions {
  readonly signal?: AbortSignal;
  /** Longest statement of the section; a silent connection is given up soon after. 0: no limit. Default 600,000. */
  readonly statementMs?: number;
}

/** Imports and clean-ups run in sections, and have statements that take long. */
const defaultStatementMs = 600_000;

export type Exclusive<T> = { readonly ran: true; readonly value: T } | { readonly ran: false };

/** A silent connection must not keep us from leaving. */
export const goodbyeMs = 2_000;

/**
 * Runs `work` if no other process is in a section of this id; never waits for one.
 *
 * The lock belongs to a connection of its own and goes with it, however that ends: on return, on a throw, when the
 * connection is lost or the process dies. What `work` does outside `section.transaction` is not fenced.
 *
 * @example
 * const result = await exclusively(database, 0x42425530001n, async (section) => {
 *   await section.transaction((tx) => tx.query('update doors set closed = true'));
 * });
 * if (!result.ran) console.log('another process holds the lock');
 */
export async function exclusively<T>(
  database: Database,
  lockId: bigint | number,
  work: (section: Section) => Promise<T>,
  options: ExclusiveOptions = {},
): Promise<Exclusive<T>> {
  const id = checkId(lockId);
  options.signal?.throwIfAborted();
  const client = await database.dedicated('tallyman exclusive section', {
    statementMs: options.statementMs ?? defaultStatementMs,
  });
  const held = new HeldSection(database, client, id, options.signal);
  try {
    await prepare(database, client);
    if (!(await lock(client, id))) return { ran: false };
    let value: T;
    try {
      value = await work(held);
    } catch (error) {
      await held.leave();
      throw held.lost ? held.lockLost(error) : error;
    }
    const wrong = await held.leave();
    if (wrong) throw wrong;
    return { ran: true, value };
  } finally {
    await within(client.end(), goodbyeMs).catch(() => {});
  }
}

class HeldSection implements Section {
  readonly signal: AbortSignal;
  readonly #database: Database;
  readonly #client: pg.Client;
  readonly #id: string;
  readonly #lost = new AbortController();
  #inTransaction = false;
  #left = false;

  constructor(database: Database, client: pg.Client, id: string, signal: AbortSignal | undefined) {
    this.#database = database;
    this.#client = client;
    this.#id = id;
    this.signal = signal ? AbortSignal.any([this.#lost.signal, signal]) : this.#lost.signal;
    const onLost = (error?: Error): void => {
      if (!this.#left) this.#lost.abort(this.lockLost(error));
    };
    client.once('error', onLost);
    client.once('end', () => onLost());
  }

  get lost(): boolean {
    return this.#lost.signal.aborted;
  }

  async transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T> {
    if (this.lost || this.#left) throw this.lockLost();
    // Two transactions on one connection would be one, and the first COMMIT would commit part of the second.
    if (this.#inTransaction)
      throw new TallymanError(
        'SECTION_BUSY',
        'A transaction of this exclusive section is open already; they run on one connection, one after another.',
      );
    this.#inTransaction = true;
    const hints = collectHints(this.#client);
    try {
      await this.#client.query('begin');
      const result = await work(this.#client);
      const { command } = await this.#client.query('commit');
      // The server answers COMMIT with ROLLBACK, and without an error, when a statement had failed before.
      if (command !== 'COMMIT')
        throw new TallymanError(
          'ROLLED_BACK',
          'A statement of the transaction had failed; nothing was committed.',
        );
      this.#database.wakeAfterCommit(hints);
      return result;
    } catch (error) {
      await this.#client.query('rollback').catch(() => {});
      throw error;
    } finally {
      endHints(this.#client);
      this.#inTransaction = false;
    }
  }

  /** Releases the lock. Returns an error if it was already lost, or if a transaction is still open. */
  async leave(): Promise<TallymanError | undefined> {
    if (this.#inTransaction) {
      this.#left = true;
      return new TallymanError(
        'SECTION_BUSY',
        'The work of an exclusive section ended while a transaction of it was open; that was rolled back. Await it.',
      );
    }
    if (!this.lost) {
      const unlocked = await within(unlock(this.#client, this.#id), goodbyeMs).catch(() => false);
      if (!unlocked) this.#lost.abort(this.lockLost());
    }
    this.#left = true;
    return this.lost ? this.lockLost() : undefined;
  }

  lockLost(cause?: unknown): TallymanError {
    const why = cause === undefined ? '' : ` (${messageOf(cause)})`;
    return new TallymanError(
      'LOCK_LOST',
      `The connection that held exclusive lock ${this.#id} is gone${why}: what was not committed on it is not done, and another may be in the section.`,
      { cause },
    );
  }
}

export async function prepare(database: Database, client: pg.Client): Promise<void> {
  // If this machine dies and closes nothing, the server notices it in half a minute instead of two hours. The server must
  // not end the session as idle while a section computes for long.
  const { rows } = await client.query<{ pid: number }>(
    `select pg_backend_pid() as pid, set_config('tcp_keepalives_idle', '15', false),
            set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false),
            set_config('idle_session_timeout', '0', false)`,
  );
  if (rows[0]?.pid === announcedPid(client) || (await detectPooler(database)) !== 'transaction') return;
  throw new TallymanError(
    'TRANSACTION_POOLER',
    'Exclusive sections need a session of their own, and a transaction pooler sits before the database. Connect directly, or use session pooling.',
  );
}

async function lock(client: pg.Client, id: string): Promise<boolean> {
  const { rows } = await client.query('select pg_try_advisory_lock($1::bigint) as locked', [id]);
  return rows[0]?.locked === true;
}

async function unlock(client: pg.Client, id: string): Promise<boolean> {
  const { rows } = await client.query('select pg_advisory_unlock($1::bigint) as unlocked', [id]);
  return rows[0]?.unlocked === true;
}

/** As text, since ids are 64 bits wide and a number is only safe to 53. */
export function checkId(id: bigint | number): string {
  const whole = typeof id === 'bigint' ? id : Number.isSafeInteger(id) ? BigInt(id) : undefined;
  if (whole === undefined || BigInt.asIntN(64, whole) !== whole)
    throw new TallymanError('BAD_OPTION', `lock id must be a signed 64-bit whole number, got ${String(id)}`);
  return whole.toString();
}
