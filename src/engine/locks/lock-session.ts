import type pg from 'pg';
import { Batcher } from '../batching/batcher.ts';
import type { Database } from '../database/database.ts';
import { messageOf, TallymanError } from '../errors.ts';
import { within } from '../resilience/deadline.ts';
import { checkId, goodbyeMs, prepare } from './exclusive.ts';

/** Asking for locks and releasing them is all that the connection does. */
const statementMs = 10_000;

/**
 * Holds any number of exclusive locks on one connection of its own, which stays open from the first question to `stop`.
 *
 * A connection that is lost takes all of its locks with it: the signals of all work under them fire, and the next question opens
 * another one. Unlike the work of `exclusively` this work cannot commit on the connection, so nothing of it is fenced.
 */
export class LockSession {
  readonly #database: Database;
  readonly #applicationName: string;
  /** Held by this process, asked for, or being released. The server would give a lock to its own session again. */
  readonly #taken = new Set<string>();
  readonly #asking: Batcher<string, OpenSession | undefined>;
  #opening: Promise<OpenSession> | undefined;
  #isStopped = false;

  constructor(database: Database, applicationName: string) {
    this.#database = database;
    this.#applicationName = applicationName;
    this.#asking = new Batcher({ send: (ids) => this.#ask(ids), maxBatch: 1000, maxInFlight: 1 });
  }

  /**
   * Runs `work` if nobody has the lock; never waits for it. False: somebody has it. Throws LOCK_LOST if the connection was lost
   * meanwhile. The signal of the work fires then, and when the one that is given here does.
   */
  async exclusively(
    lockId: bigint | number,
    work: (signal: AbortSignal) => Promise<void>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const id = checkId(lockId);
    signal.throwIfAborted();
    if (this.#taken.has(id)) return false;
    this.#taken.add(id);
    try {
      const session = await this.#asking.add(id);
      if (!session) return false;
      try {
        await work(AbortSignal.any([session.lost, signal]));
      } finally {
        await session.release(id);
      }
      session.lost.throwIfAborted();
      return true;
    } finally {
      this.#taken.delete(id);
    }
  }

  /** Call it when all work has ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    const session = await this.#opening?.catch(() => undefined);
    await session?.end();
  }

  async #ask(ids: readonly string[]): Promise<(OpenSession | undefined)[]> {
    if (this.#isStopped) throw new TallymanError('CLOSED', 'the session for locks was stopped');
    this.#opening ??= this.#open();
    const session = await this.#opening;
    const free = await session.lock(ids);
    return ids.map((id) => (free.has(id) ? session : undefined));
  }

  async #open(): Promise<OpenSession> {
    try {
      const client = await this.#database.dedicated(this.#applicationName, { statementMs });
      const session = new OpenSession(client);
      session.lost.addEventListener('abort', () => {
        this.#opening = undefined;
      });
      try {
        await prepare(this.#database, client);
        return session;
      } catch (error) {
        await session.end();
        throw error;
      }
    } catch (error) {
      this.#opening = undefined;
      throw error;
    }
  }
}

class OpenSession {
  readonly #client: pg.Client;
  readonly #losing = new AbortController();

  constructor(client: pg.Client) {
    this.#client = client;
    const onLost = (error?: Error): void => this.#losing.abort(locksLost(error));
    client.once('error', onLost);
    client.once('end', () => onLost());
  }

  get lost(): AbortSignal {
    return this.#losing.signal;
  }

  /** Those of the locks that this session has got. */
  async lock(ids: readonly string[]): Promise<Set<string>> {
    try {
      const { rows } = await this.#client.query<{ id: string }>(
        'select id::text as id from (select id, pg_try_advisory_lock(id) as locked from unnest($1::bigint[]) id) asked where locked',
        [ids],
      );
      return new Set(rows.map(({ id }) => id));
    } catch (error) {
      // Locks that a statement has got before it failed stay with the session.
      await this.end();
      throw error;
    }
  }

  /** A lock that cannot be released would keep other processes out: then all of them go. */
  async release(id: string): Promise<void> {
    if (this.lost.aborted) return;
    const released = this.#client.query<{ done: boolean }>('select pg_advisory_unlock($1::bigint) as done', [
      id,
    ]);
    const { rows } = await within(released, goodbyeMs).catch(() => ({ rows: [] }));
    if (rows[0]?.done !== true) await this.end();
  }

  async end(): Promise<void> {
    await within(this.#client.end(), goodbyeMs).catch(() => {});
    this.#losing.abort(locksLost());
  }
}

const locksLost = (cause?: unknown): TallymanError =>
  new TallymanError(
    'LOCK_LOST',
    `The connection that held the locks of this process is gone${cause === undefined ? '' : ` (${messageOf(cause)})`}: others may have them.`,
    { cause },
  );
