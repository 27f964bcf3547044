import type pg from 'pg';

/** What differs between the connections of a process. Times are in milliseconds; 0 means no limit. */
export interface SessionSettings {
  readonly statementMs: number;
  readonly idleInTransactionMs: number;
  /** More settings, by name. */
  readonly more?: Readonly<Record<string, string>>;
}

/** Sent once on every fresh connection, with `sessionValues`. Plain data, so that a thread can use it, too. */
export interface SessionStatement {
  readonly text: string;
  /** A pooler in session mode announces a pid of its own, but the session is ours all the same. */
  readonly isSessionPooled: boolean;
}

/**
 * One statement that sets everything the engine relies on, whatever the server, the role or the database says.
 * It is SQL and not start-up parameters, because PgBouncer refuses those.
 *
 * It must change nothing behind a transaction pooler, where the setting would stay in a session that somebody else uses
 * next. Such a pooler announces a pid that is not that of the session, so the statement compares the two.
 */
export function sessionStatement(settings: SessionSettings, isSessionPooled: boolean): SessionStatement {
  const values: Record<string, string> = {
    default_transaction_isolation: 'read committed',
    statement_timeout: String(settings.statementMs),
    idle_in_transaction_session_timeout: String(settings.idleInTransactionMs),
    // A client that died and closed nothing keeps its locks until the server notices: half a minute, not two hours.
    tcp_keepalives_idle: '10',
    tcp_keepalives_interval: '5',
    tcp_keepalives_count: '4',
    ...settings.more,
  };
  const list = Object.entries(values).map(([name, value]) => `set_config('${name}', '${value}', false)`);
  // Elsewhere the server cannot do it, and would write a line into its log for each connection.
  list.push(`case when version() ~ 'linux' then set_config('tcp_user_timeout', '30000', false) end`);
  // A statement of a process that was killed ends, too: its session, and the locks of it, must not outlive the process.
  list.push(
    `case when version() ~ 'linux' then set_config('client_connection_check_interval', '1000', false) end`,
  );
  return {
    text: `select ${list.join(', ')} where $2::boolean or $1::integer = pg_backend_pid()`,
    isSessionPooled,
  };
}

/** The values for `SessionStatement.text` on this connection. */
export function sessionValues(client: pg.ClientBase, { isSessionPooled }: SessionStatement): unknown[] {
  return [announcedPid(client), isSessionPooled];
}

/** Of BackendKeyData, the message after the login; a pooler makes one up. `pg` keeps it, its types do not tell. */
export function announcedPid(client: pg.ClientBase): number | null {
  return (client as pg.ClientBase & { readonly processID: number | null }).processID;
}

export interface TransactionOptions {
  /** `statement_timeout` of this transaction; 0: no limit. Default: `DatabaseOptions.queryTimeoutMs`. */
  readonly statementMs?: number;
  /** `idle_in_transaction_session_timeout` of this transaction; 0: no limit. Default: `DatabaseOptions.idleInTransactionMs`. */
  readonly idleMs?: number;
  /** Statements without parameters that go out with `begin`. */
  readonly opening?: string | undefined;
  /** Last statements without parameters, sent together with the COMMIT: nothing can come between the two. */
  readonly closing?: () => string;
}

/**
 * Opens a transaction and sets its limits in one round trip. A text of the caller's own keeps what follows its `begin`.
 * `defaults` are the limits where the session has none.
 */
export function openingOf(options: string | TransactionOptions, defaults: TransactionOptions = {}): string {
  const { statementMs, idleMs, opening } =
    typeof options === 'string' ? defaults : { ...defaults, ...options };
  const begin = [
    'begin isolation level read committed',
    ...setLocal('statement_timeout', statementMs),
    ...setLocal('idle_in_transaction_session_timeout', idleMs),
    ...(opening === undefined ? [] : [opening]),
  ].join('; ');
  return typeof options === 'string' ? options.replace(/^\s*begin\s*(?=;|$)/i, begin) : begin;
}

const setLocal = (name: string, ms: number | undefined): string[] =>
  ms === undefined ? [] : [`set local ${name} = ${Math.max(0, Math.trunc(ms))}`];
