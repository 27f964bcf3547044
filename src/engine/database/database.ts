import pg from 'pg';
import { closedError, TallymanError } from '../errors.ts';
import { type Logger, silentLogger } from '../logger.ts';
import type { Hint } from '../wakeups/wakeup.ts';
import { checkUrl, connectError, describe } from './address.ts';
import { collectHints, endHints, type Waker } from './after-commit.ts';
import { Calls } from './calls.ts';
import { HotConnection } from './hot-connection.ts';
import { HotQuery, type PreparedStatement, type RawRow, type Value } from './hot-query.ts';
import { ConnectionTimeoutError, codeOf, isOutage, isVague, Outages } from './outage.ts';
import { Pipeline, type Statement } from './pipeline.ts';
import { detectPooler, type Pooler } from './pooler.ts';
import {
  announcedPid,
  openingOf,
  type SessionSettings,
  type SessionStatement,
  sessionStatement,
  sessionValues,
  type TransactionOptions,
} from './session.ts';
import { Watchdog, type WatchOptions } from './watchdog.ts';

export { describe } from './address.ts';
export { isConnectionError, isOutage, isPassing } from './outage.ts';
export type { TransactionOptions } from './session.ts';

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
  /**
   * The engine's own statements (enqueue, claim, settle) wait this long for an answer; then the connection is
   * given up. Default 15,000.
   */
  readonly statementTimeoutMs?: number;
  /**
   * `statement_timeout` of everything else: `query`, and statements in transactions. The connection is given up when
   * there is no answer 5 s after that. 0: no limit, and half-open connections stay unnoticed. Default 60,000.
   */
  readonly queryTimeoutMs?: number;
  /** `idle_in_transaction_session_timeout`: the server ends a transaction that is idle for this long. Default 60,000. */
  readonly idleInTransactionMs?: number;
  readonly logger?: Logger;
}

export interface DedicatedOptions {
  /** `statement_timeout` of the connection; 0: no limit. Default: `DatabaseOptions.queryTimeoutMs`. */
  readonly statementMs?: number;
  /** It is for LISTEN, and its owner opens another when it ends. */
  readonly isListener?: boolean;
}

/** What a thread of its own needs to open connections as this pool does. */
export interface ThreadConnection extends pg.ClientConfig {
  readonly session: SessionStatement;
}

export const oldestServer = 15;

/** The server's own limit comes first, so that its error tells what happened. */
const graceMs = 5_000;
/** Idle for long is what these connections are for. */
const forever = { idle_session_timeout: '0' };

/** The pool, transactions on it, and connections of one's own. */
export class Database implements Queryable, Waker {
  readonly pool: pg.Pool;
  readonly logger: Logger;
  readonly #config: pg.ClientConfig;
  readonly #limits: SessionSettings;
  readonly #statementMs: number;
  readonly #watchdog: Watchdog;
  readonly #outages = new Outages();
  #hot: HotConnection | undefined;
  /** For commits of the engine; `#single` for statements of handlers, which commits must not wait for. */
  #pipeline: Pipeline | undefined;
  #single: Pipeline | undefined;
  #isSessionPooled = false;
  readonly #calls = new Calls();
  #closing: Promise<void> | undefined;
  /** Set when connecting has shown that a pooler answers instead of the server; undefined: not checked. */
  pooler: Pooler | undefined;
  /** Hears what was enqueued, after the commit. */
  onWork: ((hints: readonly Hint[]) => void) | undefined;
  /** Acts for one tenant at a time in this database (functions/tenants.sql); known once connected. */
  tenantRole = '';
  /** False behind a transaction pooler: each prepared statement would have to exist on every server connection. */
  prepare = true;

  private constructor(options: DatabaseOptions) {
    this.logger = options.logger ?? silentLogger;
    this.#config = {
      connectionString: options.url,
      application_name: options.applicationName ?? 'tallyman',
      connectionTimeoutMillis: options.connectTimeoutMs ?? 10_000,
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
    };
    this.#limits = {
      statementMs: options.queryTimeoutMs ?? 60_000,
      idleInTransactionMs: options.idleInTransactionMs ?? 60_000,
    };
    this.#statementMs = options.statementTimeoutMs ?? 15_000;
    this.#watchdog = new Watchdog({ statementMs: this.#statementMs, logger: this.logger });
    this.pool = new pg.Pool({
      ...this.#config,
      max: options.poolSize ?? 10,
      idleTimeoutMillis: 60_000,
      onConnect: (client) => {
        this.#watchdog.watch(client, { isDisposable: false });
        return this.#setUp(client, this.#limits);
      },
    });
    // Between two users a connection of the pool has no listener for a moment; an error just then would end the process.
    this.pool.on('connect', (client) => client.on('error', () => {}));
    this.pool.on('acquire', (client) => this.#watchdog.setDisposable(client, false));
    this.pool.on('release', (_, client) => this.#watchdog.setDisposable(client, true));
    this.pool.on('error', (error) => {
      // The watchdog has said why it closed connections.
      if (this.#calls.isClosing || error instanceof ConnectionTimeoutError) return;
      // A server may be configured to end idle sessions (57P05); that is no outage.
      if (codeOf(error) !== '57P05') this.#outages.remember(error);
      this.logger.warn(
        { error: error.message },
        'an idle database connection was lost; the pool opens another',
      );
    });
  }

  /** Opens the pool and proves with one query that the server answers, is recent enough, and accepts the login. */
  static async connect(options: DatabaseOptions): Promise<Database> {
    checkUrl(options.url);
    const database = new Database(options);
    try {
      const { version, isOurSession } = await database.#greet();
      const major = Math.floor(version / 10_000);
      if (major < oldestServer) {
        throw new TallymanError(
          'SERVER_TOO_OLD',
          `PostgreSQL ${major} at ${describe(options.url)} is too old: Tallyman needs ${oldestServer} or later.`,
        );
      }
      if (!isOurSession) await database.#adaptToPooler();
      return database;
    } catch (error) {
      await database.close();
      throw database.#outages.remember(connectError(error, options.url));
    }
  }

  async #greet(): Promise<{ readonly version: number; readonly isOurSession: boolean }> {
    const client = await this.pool.connect();
    try {
      // The role's name as tallyman.tenant_role() has it: the database may not be migrated yet.
      const { rows } = await client.query<{ version: string; pid: number; oid: number }>(
        `select current_setting('server_version_num') as version, pg_backend_pid() as pid, d.oid
           from pg_database d where d.datname = current_database()`,
      );
      const [row] = rows;
      if (!row)
        throw new TallymanError(
          'BAD_STATE',
          'the database is not in pg_database; it was renamed or dropped just now',
        );
      this.tenantRole = `tallyman_tenant_${row.oid}`;
      return { version: Number(row.version), isOurSession: row.pid === announcedPid(client) };
    } finally {
      client.release();
    }
  }

  /** A pooler sits between us and the server. Settings may stay in a session only if the session is ours alone. */
  async #adaptToPooler(): Promise<void> {
    this.pooler = await detectPooler(this);
    if (this.pooler === 'transaction') this.prepare = false;
    if (this.pooler !== 'session') return;
    this.#isSessionPooled = true;
    // Opened before this was known, so it has no settings yet; there is only this one.
    const client = await this.pool.connect();
    await this.#setUp(client, this.#limits).finally(() => client.release());
  }

  /** Opens connections before they are needed: a login costs more than most of what follows it. */
  async warm(connections: number): Promise<void> {
    this.#calls.requireOpen();
    const wanted = Math.min(connections, this.pool.options.max ?? connections);
    const opened = await Promise.allSettled(Array.from({ length: wanted }, () => this.pool.connect()));
    for (const outcome of opened)
      if (outcome.status === 'fulfilled') outcome.value.release();
      else this.#outages.remember(outcome.reason);
  }

  async query<Row extends pg.QueryResultRow>(text: string, values?: unknown[]) {
    this.#calls.begin();
    try {
      return await this.pool.query<Row>(text, values);
    } catch (error) {
      throw this.#outages.remember(error);
    } finally {
      this.#calls.end();
    }
  }

  /** A statement of the database's own, outside of a transaction, has committed when it is answered. */
  wakeAfterCommit(hints: readonly Hint[]): void {
    if (hints.length > 0) this.onWork?.(hints);
  }

  /** Keeps a connection open for `run`, beside the pool; see `HotConnection`. Behind a transaction pooler there is none. */
  keepHotConnection(): void {
    if (!this.prepare) return;
    // Only statements of the hot paths run here, and all of them want this setting.
    const more = { ...forever, enable_seqscan: 'off' };
    this.#hot ??= new HotConnection(() =>
      this.#open(this.#config, { ...this.#limits, more }, { isDisposable: true }),
    );
  }

  /** The next `run` will be on that connection. */
  get isHotConnectionFree(): boolean {
    return this.#hot?.isFree === true;
  }

  /** Runs a statement of the hot paths, on any connection unless told. */
  run(statement: PreparedStatement, values: readonly Value[], on?: pg.ClientBase): Promise<RawRow[]> {
    if (this.#calls.isClosing) return Promise.reject(closedError());
    this.#calls.begin();
    const query = new HotQuery(statement, values, this.prepare);
    const hot = on ? undefined : this.#hot?.take();
    // Both a pool and a client accept such a query, but the driver's types do not declare it.
    const asker = (on ?? hot ?? this.pool) as {
      query(query: HotQuery, values: undefined, done: HotQuery['callback']): void;
    };
    return new Promise((resolve, reject) => {
      asker.query(query, undefined, (error, rows = []) => {
        if (hot) this.#hot?.giveBack({ isBroken: isOutage(error) });
        this.#calls.end();
        if (error) reject(this.#outages.remember(error));
        else resolve(rows);
      });
    });
  }

  /**
   * `work` in one transaction, read committed: committed when it returns, rolled back when it throws. The options may
   * set limits of its own, or be a text that says more than `begin`; both go out in the opening round trip.
   */
  async transaction<T>(
    work: (tx: pg.PoolClient) => Promise<T>,
    options: string | TransactionOptions = {},
  ): Promise<T> {
    return this.#calls.during(() => this.#transaction(work, options));
  }

  async #transaction<T>(
    work: (tx: pg.PoolClient) => Promise<T>,
    options: string | TransactionOptions,
  ): Promise<T> {
    const client = await this.pool.connect().catch((error) => {
      throw this.#outages.remember(error);
    });
    // The first error tells why the connection was lost; those after it only that it was.
    let broken: Error | undefined;
    const onError = (error: Error): void => {
      broken ??= error;
    };
    client.on('error', onError);
    const hints = collectHints(client);
    // An idle connection of the pool may have gone silent long ago: `begin` finds out soon.
    this.#watchdog.limit(client, this.#statementMs);
    try {
      await client.query(openingOf(options, this.#limitsOfTransactions));
      this.#watchdog.limit(client, this.#answerLimitMs(typeof options === 'string' ? undefined : options));
      const result = await work(client);
      const closing = typeof options === 'string' ? undefined : options.closing?.();
      const answers: pg.QueryResult | pg.QueryResult[] = await client.query(
        closing ? `${closing}; commit` : 'commit',
      );
      const last = Array.isArray(answers) ? answers.at(-1) : answers;
      if (last?.command !== 'COMMIT')
        throw new TallymanError(
          'ROLLED_BACK',
          'PostgreSQL rolled the transaction back: a statement in it had failed, and the error was swallowed',
        );
      this.wakeAfterCommit(hints);
      return result;
    } catch (error) {
      this.#watchdog.limit(client, this.#statementMs);
      if (!broken) await client.query('rollback').catch(onError);
      if (!broken && codeOf(error) === '25006' && (await isReadOnly(client))) broken = error as Error;
      if (isVague(error) && codeOf(broken) !== '') throw this.#outages.remember(broken);
      // An error of the work's own, such as that of an HTTP request, is no outage while the connection is fine.
      if (isOutage(broken)) this.#outages.remember(error);
      throw error;
    } finally {
      endHints(client);
      client.off('error', onError);
      this.#watchdog.limit(client, this.#answerLimitMs());
      client.release(broken);
    }
  }

  /** One transaction whose statements go out together; see `Pipeline`. */
  async pipelined(statements: readonly Statement[]): Promise<pg.QueryResult[]> {
    this.#calls.begin();
    this.#pipeline ??= this.openPipeline(2);
    try {
      return await this.#pipeline.transaction(statements);
    } catch (error) {
      throw this.#outages.remember(error);
    } finally {
      this.#calls.end();
    }
  }

  /**
   * One statement in a transaction of its own that begins with `opening` (SQL without parameters), in one round trip.
   * On up to four connections beside the pool.
   */
  async queryWithin(opening: string, statement: Statement): Promise<pg.QueryResult> {
    this.#calls.begin();
    this.#single ??= this.openPipeline(4);
    try {
      const [result] = await this.#single.transaction([statement], opening);
      return result as pg.QueryResult;
    } catch (error) {
      throw this.#outages.remember(error);
    } finally {
      this.#calls.end();
    }
  }

  /** Connections beside the pool, for transactions whose statements are all known beforehand. The caller closes it. */
  openPipeline(maxConnections: number): Pipeline {
    const config = { ...this.#config, pipeline: true } as pg.ClientConfig;
    return new Pipeline(() => this.#open(config, this.#limits, { isDisposable: false }), maxConnections);
  }

  /** A connection outside the pool, for what belongs to a session: LISTEN, advisory locks. The caller ends it. */
  async dedicated(applicationName?: string, options: DedicatedOptions = {}): Promise<pg.Client> {
    this.#calls.requireOpen();
    const { statementMs = this.#limits.statementMs, isListener = false } = options;
    const config = { ...this.#config, ...(applicationName && { application_name: applicationName }) };
    const settings = { ...this.#limits, statementMs, more: forever };
    return this.#open(config, settings, { isDisposable: isListener, isListener });
  }

  async #open(config: pg.ClientConfig, settings: SessionSettings, watch: WatchOptions): Promise<pg.Client> {
    const client = new pg.Client(config);
    client.on('error', () => {});
    try {
      await client.connect();
      this.#watchdog.watch(client, watch);
      await this.#setUp(client, settings);
      return client;
    } catch (error) {
      void client.end();
      throw this.#outages.remember(error);
    }
  }

  async #setUp(client: pg.ClientBase, settings: SessionSettings): Promise<void> {
    const statement = sessionStatement(settings, this.#isSessionPooled);
    await client.query(statement.text, sessionValues(client, statement));
    this.#watchdog.limit(client, this.#answerLimitMs(settings));
  }

  /** Behind a transaction pooler no session is ours to set; each transaction brings its limits along. */
  get #limitsOfTransactions(): TransactionOptions {
    const { statementMs, idleInTransactionMs: idleMs } = this.#limits;
    return this.prepare ? {} : { statementMs, idleMs };
  }

  #answerLimitMs({ statementMs = this.#limits.statementMs }: { readonly statementMs?: number } = {}): number {
    return statementMs && statementMs + graceMs;
  }

  /**
   * True when the error says that this database could not be used: it, or one that caused it, came out of a method of
   * this object, or it looks like it and comes within 10 s of one that did (from a pool of the caller's own, on the same
   * server). A transaction that the caller left idle, and a cancelled statement, are not outages.
   */
  isOwnOutage(error: unknown): boolean {
    return this.#outages.isOwn(error);
  }

  /** There was an outage within the last 10 s. */
  get hadOutage(): boolean {
    return this.#outages.isRecent;
  }

  get connectionConfig(): ThreadConnection {
    const settings = { ...this.#limits, more: forever };
    return { ...this.#config, session: sessionStatement(settings, this.#isSessionPooled) };
  }

  /** Waits for what is under way; calls from now on are refused with CLOSED. May be called again. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // The pool would leave those without an answer that wait for a connection.
    await this.#calls.close();
    await Promise.all([this.#hot?.close(), this.#pipeline?.close(), this.#single?.close(), this.pool.end()]);
  }
}

/** Whether the server takes no writes, as a standby does; a transaction that only asked to be read-only is no sign of it. */
async function isReadOnly(client: pg.ClientBase): Promise<boolean> {
  const { rows } = await client
    .query<{ readonly: string }>(`select current_setting('transaction_read_only') as readonly`)
    .catch(() => ({ rows: [] }));
  return rows[0]?.readonly === 'on';
}
