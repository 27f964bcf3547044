import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { examine, type Finding } from '../../../src/engine/database/doctor.ts';
import { emptyDatabase, type FreshDatabase, freshDatabase } from '../../support/postgres.ts';

let fresh: FreshDatabase;

beforeEach(async () => {
  fresh = await freshDatabase();
});
afterEach(() => fresh.drop());

const databaseName = (): string => new URL(fresh.url).pathname.slice(1);

async function connect(url: string): Promise<Database> {
  const database = await Database.connect({ url, poolSize: 2 });
  onTestFinished(() => database.close());
  return database;
}

async function finding(check: string, database: Database = fresh.database): Promise<Finding | undefined> {
  return (await examine(database)).find((each) => each.check === check);
}

it('has nothing to say about a healthy database', async () => {
  const findings = await examine(fresh.database);
  // How slow the machine is, and what others do on the server, is not for this test to judge.
  const shared = ['round-trip', 'connections', 'open-transactions'];
  expect(findings.filter(({ level, check }) => level !== 'ok' && !shared.includes(check))).toEqual([]);
  expect(findings.map(({ check }) => check)).toEqual([
    'server-version',
    'migrations',
    'writable',
    'round-trip',
    'clock',
    'pooler',
    'durability',
    'isolation',
    'timeouts',
    'autovacuum',
    'connections',
    'open-transactions',
    'expired-claims',
    'history-partitions',
    'history-default',
    'tenant-role',
  ]);
});

it('every finding that is not ok says what to do', async () => {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const database = await Database.connect({ url });
  const findings = await examine(database);
  await database.close();
  expect(findings.filter(({ level, advice }) => level !== 'ok' && !advice)).toEqual([]);
  expect(findings.filter(({ level }) => level === 'fail').map(({ check }) => check)).toEqual(
    expect.arrayContaining(['migrations', 'writable', 'expired-claims']),
  );
});

describe('what costs safety', () => {
  it('synchronous_commit off', async () => {
    await fresh.database.query(`alter database ${databaseName()} set synchronous_commit = off`);
    expect(await finding('durability', await connect(fresh.url))).toMatchObject({
      level: 'fail',
      message: expect.stringContaining('synchronous_commit is off'),
    });
  });

  it('autovacuum off for a table', async () => {
    await fresh.database.query('alter table tallyman.jobs set (autovacuum_enabled = false)');
    expect(await finding('autovacuum')).toMatchObject({
      level: 'fail',
      message: 'autovacuum is off for jobs',
    });
  });

  it('a read-only database', async () => {
    await fresh.database.query(`alter database ${databaseName()} set default_transaction_read_only = on`);
    expect(await finding('writable', await connect(fresh.url))).toMatchObject({ level: 'fail' });
  });

  it('ENG-18: another isolation level for callers’ own transactions', async () => {
    await fresh.database.query(
      `alter database ${databaseName()} set default_transaction_isolation = 'repeatable read'`,
    );
    expect(await finding('isolation', await connect(fresh.url))).toMatchObject({
      level: 'warn',
      message: expect.stringContaining('"repeatable read"'),
      advice: expect.stringContaining('40001'),
    });
  });

  it.each(['statement_timeout', 'idle_in_transaction_session_timeout'])(
    'ENG-18: a %s of the database',
    async (name) => {
      await fresh.database.query(`alter database ${databaseName()} set ${name} = '7s'`);
      expect(await finding('timeouts', await connect(fresh.url))).toMatchObject({
        level: 'warn',
        message: `${name} is 7000 ms for this user or database`,
      });
    },
  );

  it('a user that may not write', async () => {
    const user = databaseName();
    await fresh.database.query(`create role ${user} login password 'x'`);
    await fresh.database.query(`grant usage on schema tallyman to ${user};
      grant select, insert, update, delete on all tables in schema tallyman to ${user};
      revoke delete on tallyman.claims from ${user}`);
    const url = new URL(fresh.url);
    url.username = user;
    url.password = 'x';
    const database = await Database.connect({ url: url.toString(), poolSize: 2 });
    const found = await finding('writable', database);
    await database.close();
    await fresh.database.query(`drop owned by ${user}; drop role ${user}`);
    expect(found).toMatchObject({ level: 'fail', message: 'this user may not write claims' });
  });
});

describe('what has been left undone', () => {
  it('a missing migration', async () => {
    await fresh.database.query('delete from tallyman.migrations where version = 2');
    expect(await finding('migrations')).toMatchObject({ level: 'fail', advice: 'Run: tallyman migrate' });
  });

  it('expired claims that nobody recovers', async () => {
    await fresh.database.query(
      `insert into tallyman.claims (token, worker, stream, expires_at, stale_at, positions, max_pos)
       values (1, 'w', 1, now() - interval '1 hour', now(), '{1,2,3}', 3)`,
    );
    expect(await finding('expired-claims')).toMatchObject({
      level: 'warn',
      message: expect.stringContaining('3 item(s)'),
    });
  });

  it('no history partitions ahead, and finished jobs in the default one', async () => {
    await fresh.database.query(`do $$ declare t text; begin
      for t in select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
                where i.inhparent = 'tallyman.history'::regclass and c.relname <> 'history_default'
      loop execute format('drop table tallyman.%I', t); end loop; end $$`);
    await fresh.database.query(`insert into tallyman.history
      (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind, tenant_id, payload)
      values (1, now(), 'FAILED', 1, 1, 5, now(), now(), 'k', 't', '{}')`);
    expect(await finding('history-partitions')).toMatchObject({ level: 'fail' });
    expect(await finding('history-default')).toMatchObject({ level: 'warn' });
  });

  it('an open transaction is named by its age and pid', async () => {
    await fresh.database.transaction(async (tx) => {
      await tx.query('select 1');
      expect(await finding('open-transactions')).toMatchObject({
        message: expect.stringMatching(/\d+ s old \(pid \d+/),
      });
    });
  });
});
