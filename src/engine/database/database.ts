import pg from 'pg';
import { messageOf, TallymanError } from '../errors.ts';
import { type Logger, silentLogger } from '../logger.ts';
import { HotQuery, type PreparedStatement, type RawRow, type Value } from './hot-query.ts';
import { Spare } from './spare.ts';

/** Anything that can run SQL: a `pg` client, a pool, a transaction of ours or of a query builder. */
export interface Queryable {
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<{ rows: Row[]; rowCount: number | null }>;
}

export interface DatabaseOptions {
  readonly url: string;
  /** Connections of the pool. Workers, enqueues and your own queries share them. Default 10. */
  readonly poolSize?: number;
  /** Shown in pg_stat_activity. Default `tallyman`. */
  readonly applicationName?: string;
  /** Default 10,000. */
  readonly connectTimeoutMs?: number;
  readonly logger?: Logger;
}

export const oldestServer = 15;

/** The pool, transactions on it, and connections of one's own. */
export class Database implements Queryable {
  readonly pool: pg.Pool;
  readonly logger: Logger;
  readonly #config: pg.ClientConfig;
  #spare: Spare | undefined;
  #closing = false;
  /** False behind a transaction pooler: each prepared statement would have to exist on every server connection. */
  prepare = true;

  private constructor(options: DatabaseOptions) {
    this.logger = options.logger ?? silentLogger;
    this.#config = {
      connectionString: options.url,
      application_name: options.applicationName ?? 'tallyman',
      connectionTimeoutMillis: options.connectTimeoutMs ?? 10_000,
      keepAlive: true,
    };
    this.pool = new pg.Pool({ ...this.#config, max: options.poolSize ?? 10, idleTimeoutMillis: 60_000 });
    // Between two users a connection of the pool has no listener for a moment; an error just then would end the process.
    this.pool.on('connect', (client) => client.on('error', () => {}));
    this.pool.on('error', (error) => {
      if (this.#closing) return;
      this.logger.warn(
        { error: error.message },
        'an idle database connection was lost; the pool opens another',
      );
    });
  }

  /** Opens the pool and proves with one query that the server is there, young enough, and lets us in. */
  static async connect(options: DatabaseOptions): Promise<Database> {
    checkUrl(options.url);
    const database = new Database(options);
    try {
      const { rows } = await database.query<{ version: string }>(
        `select current_setting('server_version_num') as version`,
      );
      const major = Math.floor(Number(rows[0]?.version) / 10_000);
      if (major < oldestServer) {
        throw new TallymanError(
          'SERVER_TOO_OLD',
          `PostgreSQL ${major} at ${describe(options.url)} is too old: Tallyman needs ${oldestServer} or later.`,
        );
      }
      return database;
    } catch (error) {
      await database.close();
      throw connectError(error, options.url);
    }
  }

  /** Opens connections before they are needed: a login costs more than most of what follows it. */
  async warm(connections: number): Promise<void> {
    const wanted = Math.min(connections, this.pool.options.max ?? connections);
    const opened = await Promise.allSettled(Array.from({ length: wanted }, () => this.pool.connect()));
    for (const outcome of opened) if (outcome.status === 'fulfilled') outcome.value.release();
  }

  query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]) {
    return this.pool.query<Row>(text, values);
  }

  /** Keeps a connection at hand for `run`, beside the pool; see `Spare`. Behind a transaction pooler there is none. */
  keepSpare(): void {
    if (!this.prepare) return;
    this.#spare ??= new Spare(async () => {
      const client = await this.dedicated();
      // Nothing but statements of the hot paths runs here: what they need is said once.
      try {
        await client.query('set enable_seqscan = off');
      } catch (error) {
        await client.end();
        throw error;
      }
      return client;
    });
  }

  /** The next `run` will be on that connection. */
  get hasSpareFree(): boolean {
    return this.#spare?.isFree === true;
  }

  /** Runs a statement of the hot paths, on any connection unless told. */
  run(statement: PreparedStatement, values: readonly Value[], on?: pg.ClientBase): Promise<RawRow[]> {
    const query = new HotQuery(statement, values, this.prepare);
    const spare = on ? undefined : this.#spare?.take();
    // A pool and a client take it alike; the driver's types know of neither.
    const asker = (on ?? spare ?? this.pool) as {
      query(query: HotQuery, values: undefined, done: HotQuery['callback']): void;
    };
    return new Promise((resolve, reject) => {
      asker.query(query, undefined, (error, rows = []) => {
        if (spare) this.#spare?.giveBack({ isBroken: isConnectionError(error) });
        if (error) reject(error);
        else resolve(rows);
      });
    });
  }

  /**
   * `work` in one transaction: committed when it returns, rolled back when it throws. `opening` may say more than `begin`,
   * in the same round trip.
   */
  async transaction<T>(work: (tx: pg.PoolClient) => Promise<T>, opening = 'begin'): Promise<T> {
    const client = await this.pool.connect();
    let broken: Error | undefined;
    const onError = (error: Error): void => {
      broken = error;
    };
    client.on('error', onError);
    try {
      await client.query(opening);
      const result = await work(client);
      const { command } = await client.query('commit');
      if (command !== 'COMMIT')
        throw new TallymanError(
          'ROLLED_BACK',
          'PostgreSQL rolled the transaction back: a statement in it had failed, and the error was swallowed',
        );
      return result;
    } catch (error) {
      await client.query('rollback').catch((reason: Error) => {
        broken = reason;
      });
      throw error;
    } finally {
      client.off('error', onError);
      client.release(broken);
    }
  }

  /** A connection outside the pool, for what belongs to a session: LISTEN, advisory locks. The caller ends it. */
  async dedicated(applicationName?: string): Promise<pg.Client> {
    const client = new pg.Client({
      ...this.#config,
      ...(applicationName && { application_name: applicationName }),
    });
    client.on('error', () => {});
    await client.connect();
    return client;
  }

  /** What a thread of its own needs to open connections as this pool does. */
  get connectionConfig(): pg.ClientConfig {
    return this.#config;
  }

  async close(): Promise<void> {
    this.#closing = true;
    await Promise.all([this.#spare?.close(), this.pool.end()]);
  }
}

function checkUrl(url: string): void {
  if (!/^postgres(ql)?:\/\//.test(url) || !URL.canParse(url)) {
    throw new TallymanError(
      'BAD_DATABASE_URL',
      `DATABASE_URL is not a PostgreSQL address: expected postgres://user:password@host:5432/database, got "${describe(url)}".`,
    );
  }
}

/** The address without its password. */
export function describe(url: string): string {
  if (!URL.canParse(url)) return url.replace(/:[^:@/]*@/, ':…@');
  const parsed = new URL(url);
  if (parsed.password) parsed.password = '…';
  return decodeURIComponent(parsed.toString());
}

function connectError(error: unknown, url: string): TallymanError {
  if (error instanceof TallymanError) return error;
  const code = (error as { code?: string }).code ?? '';
  const where = describe(url);
  const inner = error instanceof AggregateError ? error.errors.map(messageOf).join('; ') : messageOf(error);
  const say = (kind: string, text: string) => new TallymanError(kind, text, { cause: error });
  if (code === '28P01' || code === '28000')
    return say(
      'DATABASE_AUTH',
      `PostgreSQL at ${where} refused the login: ${inner}. Check user and password.`,
    );
  if (code === '3D000')
    return say('DATABASE_MISSING', `There is no such database at ${where}: ${inner}. Create it first.`);
  return say(
    'DATABASE_UNREACHABLE',
    `Cannot reach PostgreSQL at ${where}: ${inner}. Is it running, and is the address right?`,
  );
}

/** True for errors that say nothing about the statement: the connection went, or the server is going or coming. */
export function isConnectionError(error: unknown): boolean {
  const code = (error as { code?: string } | null)?.code ?? '';
  return (
    /^(ECONN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENOTFOUND)/.test(code) ||
    /^(08|57P0)/.test(code) ||
    code === '53300' ||
    /Connection terminated|Client has encountered a connection error|timeout exceeded when trying to connect|Client was closed/.test(
      messageOf(error),
    )
  );
}
