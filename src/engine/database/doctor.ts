import { messageOf } from '../errors.ts';
import { isTenantRoleReady } from '../sql/is-tenant-role-ready.ts';
import { keepsSharedTenantRole, retireSharedTenantRole } from '../sql/keeps-shared-tenant-role.ts';
import { type Database, oldestServer } from './database.ts';
import { describePending, migrate } from './migrate.ts';
import { isOutOfStep } from './migration-errors.ts';
import { detectPooler } from './pooler.ts';

export interface Finding {
  /** Stable, for scripts: `server-version`, `pooler` … */
  readonly check: string;
  readonly level: 'ok' | 'warn' | 'fail';
  readonly message: string;
  /** What to do about it. */
  readonly advice?: string;
}

type Verdict = Omit<Finding, 'check'>;
type Check = (database: Database) => Promise<Verdict>;

const ok = (message: string): Verdict => ({ level: 'ok', message });
const warn = (message: string, advice: string): Verdict => ({ level: 'warn', message, advice });
const fail = (message: string, advice: string): Verdict => ({ level: 'fail', message, advice });

/** Everything that the state of the database can tell about whether Tallyman will work well on it. */
export async function examine(database: Database): Promise<Finding[]> {
  const findings: Finding[] = [];
  // One after another: what one check does must not disturb what another measures.
  for (const [check, judge] of Object.entries(checks)) {
    try {
      findings.push({ check, ...(await judge(database)) });
    } catch (error) {
      // The other checks would look at tables of another version.
      if (isOutOfStep(error)) throw error;
      const advice = 'See the other findings; a missing schema or missing privileges explain most of these.';
      findings.push({ check, level: 'fail', message: `could not be examined: ${messageOf(error)}`, advice });
    }
  }
  return findings;
}

const checks: Readonly<Record<string, Check>> = {
  'server-version': serverVersion,
  migrations,
  writable,
  'round-trip': roundTrip,
  clock,
  pooler,
  durability,
  isolation,
  timeouts,
  autovacuum,
  connections,
  'open-transactions': openTransactions,
  'expired-claims': expiredClaims,
  'history-partitions': historyPartitions,
  'history-default': historyDefault,
  'tenant-role': tenantRole,
};

async function tenantRole(database: Database): Promise<Verdict> {
  if (await keepsSharedTenantRole(database))
    return warn(
      'members of the role "tallyman_tenant", which all databases of this server share, may read and write rows of tenants here',
      `When no program of release 0.2 runs any more: ${retireSharedTenantRole};`,
    );
  if (!(await isTenantRoleReady(database)))
    return warn(
      `the role "${database.tenantRole}" is missing or lacks rights; the server and tenant-scoped kinds need it`,
      'Start a server or worker: it makes the role, or says what an administrator has to run.',
    );
  return ok(`tenants have the role "${database.tenantRole}", which no other database shares`);
}

async function serverVersion(database: Database): Promise<Verdict> {
  const { version, number } = await one<{ version: string; number: number }>(
    database,
    `select current_setting('server_version') as version, current_setting('server_version_num')::integer as number`,
  );
  if (number < oldestServer * 10_000)
    return fail(`PostgreSQL ${version} is too old`, `Use PostgreSQL ${oldestServer} or later.`);
  return ok(`PostgreSQL ${version}`);
}

async function migrations(database: Database): Promise<Verdict> {
  const { pending, current } = await migrate(database, { dryRun: true });
  if (pending.length === 0) return ok(`all ${current} migrations are applied`);
  return fail(describePending(pending), 'Run: tallyman migrate');
}

async function writable(database: Database): Promise<Verdict> {
  const { standby, readonly, usage, lacking } = await one<{
    standby: boolean;
    readonly: string;
    usage: boolean | null;
    lacking: string[] | null;
  }>(
    database,
    `select pg_is_in_recovery() as standby, current_setting('transaction_read_only') as readonly,
            (select has_schema_privilege(n.oid, 'usage') from pg_namespace n where n.nspname = 'tallyman') as usage,
            (select array_agg(c.relname::text order by c.relname)
               from pg_class c join pg_namespace n on n.oid = c.relnamespace
              where n.nspname = 'tallyman' and c.relkind in ('r', 'p')
                and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                         and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))) as lacking`,
  );
  if (standby) return fail('this server is a standby: it takes no writes', 'Connect to the primary.');
  if (readonly === 'on')
    return fail(
      'transactions are read-only',
      'Unset default_transaction_read_only for this user or database.',
    );
  if (usage === null) return fail('there is no schema "tallyman"', 'Run: tallyman migrate');
  if (!usage) return fail('this user may not use schema "tallyman"', 'grant usage on schema tallyman to …');
  if (lacking)
    return fail(
      `this user may not write ${lacking.join(', ')}`,
      'grant select, insert, update, delete on all tables in schema tallyman to …',
    );
  return ok('schema "tallyman" is writable');
}

async function roundTrip(database: Database): Promise<Verdict> {
  const times: number[] = [];
  for (let i = 0; i < 7; i += 1) {
    const before = performance.now();
    await database.query('select 1');
    times.push(performance.now() - before);
  }
  const median = times.sort((a, b) => a - b)[3] ?? 0;
  const message = `a round trip takes ${median.toFixed(1)} ms`;
  if (median <= 20) return ok(message);
  return warn(message, 'Run workers near the database: every claim and every commit costs one of these.');
}

async function clock(database: Database): Promise<Verdict> {
  const before = Date.now();
  const { now } = await one<{ now: number }>(
    database,
    'select (extract(epoch from clock_timestamp()) * 1000)::float8 as now',
  );
  const after = Date.now();
  // A difference smaller than the round trip says nothing.
  const apart = Math.max(0, Math.abs(now - (before + after) / 2) - (after - before) / 2);
  if (apart <= 2000)
    return ok(`this machine and the database agree on the time within ${Math.ceil(apart)} ms`);
  return warn(
    `this machine's clock is ${(apart / 1000).toFixed(1)} s ${now > after ? 'behind' : 'ahead of'} the database's`,
    'Leases and schedules go by the database and are safe; logs and your own timestamps will not match. Run NTP.',
  );
}

async function pooler(database: Database): Promise<Verdict> {
  const found = await detectPooler(database);
  if (found === 'none') return ok('no pooler between here and the server');
  if (found === 'session') return ok('a pooler in session mode: as good as none');
  return warn(
    'a transaction pooler sits before the database: advisory locks, LISTEN and prepared statements do not hold',
    'Give Tallyman a direct address, or a pool in session mode. Until then it polls, and takes no exclusive sections.',
  );
}

async function durability(database: Database): Promise<Verdict> {
  const { fsync, pages, commit } = await one<{ fsync: string; pages: string; commit: string }>(
    database,
    `select current_setting('fsync') as fsync, current_setting('full_page_writes') as pages,
            current_setting('synchronous_commit') as commit`,
  );
  if (fsync === 'off')
    return fail(
      'fsync is off: a power failure can destroy the database',
      `Set fsync = on in postgresql.conf.`,
    );
  if (pages === 'off')
    return fail(
      'full_page_writes is off: a page half written at a power failure is lost',
      'Set full_page_writes = on, unless the file system writes pages whole.',
    );
  if (commit === 'off')
    return fail(
      'synchronous_commit is off: what was acknowledged in the last moments before a crash is lost',
      'Set synchronous_commit = on for this user or database.',
    );
  return ok(`fsync and full_page_writes are on, synchronous_commit is ${commit}`);
}

/** `reset_val` is what a session begins with: what the server, the database and the role say, not what we have set since. */
const atStart = (name: string): string => `(select reset_val from pg_settings where name = '${name}')`;

async function isolation(database: Database): Promise<Verdict> {
  const { level } = await one<{ level: string }>(
    database,
    `select ${atStart('default_transaction_isolation')} as level`,
  );
  if (level === 'read committed') return ok('transactions are read committed unless they say otherwise');
  return warn(
    `default_transaction_isolation is "${level}" for this user or database`,
    database.prepare
      ? 'Tallyman sets read committed on its own connections. Transactions on connections of your own can fail with 40001 when they enqueue: retry them, or begin them with isolation level read committed.'
      : "Behind a transaction pooler Tallyman cannot change it for single statements, which can fail with 40001. Run: alter role … set default_transaction_isolation = 'read committed'",
  );
}

async function timeouts(database: Database): Promise<Verdict> {
  const limits = await one<Record<string, string>>(
    database,
    `select ${atStart('statement_timeout')} as statement_timeout,
            ${atStart('idle_in_transaction_session_timeout')} as idle_in_transaction_session_timeout`,
  );
  const set = Object.entries(limits).filter(([, ms]) => ms !== '0');
  if (set.length === 0) return ok('no timeouts are set for this user or database');
  return warn(
    `${set.map(([name, ms]) => `${name} is ${ms} ms`).join(' and ')} for this user or database`,
    database.prepare
      ? 'Tallyman sets its own on its connections (queryTimeoutMs, idleInTransactionMs), so this holds for connections of your own only. Change those options if you meant it for Tallyman.'
      : 'Behind a transaction pooler this ends statements of Tallyman, too. Allow 60 s at least, or give Tallyman a role without it.',
  );
}

async function autovacuum(database: Database): Promise<Verdict> {
  const { on, off } = await one<{ on: boolean; off: string[] | null }>(
    database,
    `select current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean as on,
            (select array_agg(c.relname::text order by c.relname)
               from pg_class c join pg_namespace n on n.oid = c.relnamespace, unnest(c.reloptions) as o
              where n.nspname = 'tallyman' and o ~ '^autovacuum_enabled=(false|off|no|0)$') as off`,
  );
  const advice = 'Turn it on: the tables of a queue are rewritten all the time and grow without it.';
  if (!on) return fail('autovacuum is off', advice);
  if (off) return fail(`autovacuum is off for ${off.join(', ')}`, advice);
  return ok('autovacuum is on');
}

async function connections(database: Database): Promise<Verdict> {
  const { used, most } = await one<{ used: number; most: number }>(
    database,
    `select (select count(*)::integer from pg_stat_activity where backend_type = 'client backend') as used,
            current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
            - coalesce(current_setting('reserved_connections', true)::integer, 0) as most`,
  );
  const message = `${used} of ${most} connections are in use`;
  // Workers also open one for wake-ups, one for the heartbeat and one for housekeeping.
  const wanted = (database.pool.options.max ?? 10) + 3;
  if (most - used >= wanted) return ok(message);
  return warn(
    message,
    `One more process takes up to ${wanted}. Raise max_connections or lower the pool size.`,
  );
}

async function openTransactions(database: Database): Promise<Verdict> {
  const { pid, seconds, name } = await one<{
    pid: number | null;
    seconds: number | null;
    name: string | null;
  }>(
    database,
    `select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::integer as seconds, a.application_name as name
       from (select 1) always
       left join (select * from pg_stat_activity
                   where xact_start is not null and backend_type = 'client backend' and pid <> pg_backend_pid()
                   order by xact_start limit 1) a on true`,
  );
  if (pid === null) return ok('no other transaction is open');
  const message = `the oldest open transaction is ${seconds} s old (pid ${pid}, ${name || 'without a name'})`;
  if ((seconds ?? 0) < 300) return ok(message);
  return warn(
    message,
    `Nothing deleted since can be cleaned up. Tallyman keeps its speed, its tables grow. To end it: select pg_terminate_backend(${pid})`,
  );
}

/** Workers recover expired claims every 30 s. Claims that stay longer show that no worker does. */
async function expiredClaims(database: Database): Promise<Verdict> {
  const { claims, items } = await one<{ claims: number; items: number }>(
    database,
    `select count(*)::integer as claims, coalesce(sum(cardinality(positions)), 0)::integer as items
       from tallyman.claims where least(expires_at, stale_at) < now() - interval '2 minutes'`,
  );
  if (claims === 0) return ok('no claims lie expired');
  return warn(
    `${claims} expired claim(s) with ${items} item(s) wait to be recovered`,
    'Start a worker: recovery is part of every worker.',
  );
}

async function historyPartitions(database: Database): Promise<Verdict> {
  const { days } = await one<{ days: number }>(
    database,
    `select coalesce(max(to_date(substr(c.relname, 9), 'YYYYMMDD')) - (now() at time zone 'UTC')::date, -1)::integer as days
       from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'tallyman.history'::regclass and c.relname ~ '^history_[0-9]{8}$'`,
  );
  const advice = 'Start a worker or the server: one of them makes partitions ahead of time.';
  if (days < 0) return fail('there is no history partition for today', advice);
  if (days < 2) return warn(`history partitions reach ${days} day(s) ahead`, advice);
  return ok(`history partitions reach ${days} days ahead`);
}

async function historyDefault(database: Database): Promise<Verdict> {
  const { filled } = await one<{ filled: boolean }>(
    database,
    'select exists (select 1 from tallyman.history_default) as filled',
  );
  if (!filled) return ok('no finished job missed its partition');
  return warn(
    'finished jobs lie in the default partition: theirs was not made in time',
    'They are deleted row by row when their time is past. See history-partitions.',
  );
}

async function one<Row extends object>(database: Database, sql: string): Promise<Row> {
  const { rows } = await database.query<Row>(sql);
  return rows[0] as Row;
}
