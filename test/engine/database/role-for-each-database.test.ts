import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { examine } from '../../../src/engine/database/doctor.ts';
import { migrate } from '../../../src/engine/database/migrate.ts';
import { asTenant, prepareTenants } from '../../../src/engine/database/tenant.ts';
import { copyOf, emptyDatabase, type FreshDatabase, freshDatabase } from '../../support/postgres.ts';

/** Migrated, with a job of tenant `acme` in it. */
async function tenantsDatabase(): Promise<FreshDatabase> {
  const fresh = await freshDatabase();
  onTestFinished(fresh.drop);
  await fillWithJob(fresh.database);
  return fresh;
}

async function fillWithJob(database: Database): Promise<void> {
  await database.query(`select tallyman.register_kind('noop')`);
  await database.query(`select tallyman.enqueue('noop', tenant_id => 'acme')`);
}

async function connected(url: string): Promise<Database> {
  const database = await Database.connect({ url });
  onTestFinished(() => database.close());
  return database;
}

/** A login with the given words, on one of the databases; gone with the test. */
async function login(
  { database, url }: Pick<FreshDatabase, 'database' | 'url'>,
  options: string,
): Promise<{ name: string; on(other: string): string }> {
  const name = `login_${new URL(url).pathname.slice(3)}`;
  await database.query(`create role ${name} login password 'secret' ${options}`);
  onTestFinished(async () => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(`drop owned by ${name} cascade; drop role ${name}`).finally(() => client.end());
  });
  return {
    name,
    on: (other) => Object.assign(new URL(other), { username: name, password: 'secret' }).toString(),
  };
}

const jobsOfAcme = (role: string): string[] => [
  'begin',
  `set local role ${role}`,
  `set local tallyman.tenant = 'acme'`,
  'select id from tallyman.jobs',
];

/** What the last statement answers, or the error of the first that fails. */
async function answer(url: string, statements: readonly string[]): Promise<number | string> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    let count: number | null = 0;
    for (const statement of statements) count = (await client.query(statement)).rowCount;
    return count ?? 0;
  } catch (error) {
    return (error as { code: string }).code;
  } finally {
    await client.end();
  }
}

const denied = '42501';

test('SEC-10: who may act for the tenants of one database may not for those of another on the same server', async () => {
  const [ours, theirs] = [await tenantsDatabase(), await tenantsDatabase()];
  const { database } = ours;
  expect(database.tenantRole).not.toBe(theirs.database.tenantRole);
  const intruder = await login(ours, 'noinherit');
  await database.query(`grant ${database.tenantRole} to ${intruder.name}`);
  expect(await answer(intruder.on(ours.url), jobsOfAcme(database.tenantRole))).toBe(1);
  // It connects to the other database, as PUBLIC may unless that is revoked, and finds nothing that it may use.
  expect(await answer(intruder.on(theirs.url), jobsOfAcme(theirs.database.tenantRole))).toBe(denied);
  expect(await answer(intruder.on(theirs.url), jobsOfAcme(database.tenantRole))).toBe(denied);
});

test('SEC-10: a new database gives nothing to the role that earlier releases shared', async () => {
  const first = await tenantsDatabase();
  // Another database of the server, of a release before: it makes the shared role.
  await first.database.query('select tallyman.prepare_tenants()');
  const second = await tenantsDatabase();
  const intruder = await login(first, 'noinherit');
  await first.database.query(`grant tallyman_tenant to ${intruder.name}`);
  expect(await answer(intruder.on(first.url), jobsOfAcme('tallyman_tenant'))).toBe(1);
  expect(await answer(intruder.on(second.url), jobsOfAcme('tallyman_tenant'))).toBe(denied);
});

test('SEC-10: a copy of a database takes the rights of the original’s role away when it is first used', async () => {
  const original = await tenantsDatabase();
  await original.database.query('create table public.notes (n integer)');
  await original.database.query(`grant select on public.notes to ${original.database.tenantRole}`);
  const intruder = await login(original, 'noinherit');
  await original.database.query(`grant ${original.database.tenantRole} to ${intruder.name}`);
  const { tenantRole } = original.database;
  await original.database.close();
  const copied = await copyOf(original.url);
  const copy = await connected(copied.url);
  await prepareTenants(copy);
  expect(await answer(intruder.on(copied.url), jobsOfAcme(tenantRole))).toBe(denied);
  // Its own role has all that the original's had.
  expect(await answer(copied.url, jobsOfAcme(copy.tenantRole))).toBe(1);
  const seen = await asTenant(copy, 'acme', (scope) => scope.query('select n from public.notes'));
  expect(seen.rows).toEqual([]);
});

test('SEC-10: a renamed database keeps its role', async () => {
  const { url, database } = await tenantsDatabase();
  const { tenantRole } = database;
  await database.close();
  const name = new URL(url).pathname.slice(1);
  const rename = async (from: string, to: string): Promise<void> => {
    const client = new pg.Client({ connectionString: (await emptyElsewhere()).url });
    await client.connect();
    await client.query(`alter database ${from} rename to ${to}`).finally(() => client.end());
  };
  await rename(name, `${name}_new`);
  const renamed = await Database.connect({ url: `${url}_new` });
  expect(renamed.tenantRole).toBe(tenantRole);
  await prepareTenants(renamed);
  const jobs = await asTenant(renamed, 'acme', (scope) => scope.query('select id from tallyman.jobs'));
  await renamed.close();
  await rename(`${name}_new`, name);
  expect(jobs.rows).toHaveLength(1);
});

async function emptyElsewhere(): Promise<{ url: string }> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  return { url };
}

test.each([
  ['may make roles', 'createrole', 'ready'],
  ['may not, until an administrator has done what the error says', '', 'MISSING_PRIVILEGES'],
])('SEC-10: an owner of the database who is no superuser and %s', async (_, options, outcome) => {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const administrator = await connected(url);
  const owner = await login({ database: administrator, url }, options);
  await administrator.query(`grant create on database "${new URL(url).pathname.slice(1)}" to ${owner.name}`);
  const database = await connected(owner.on(url));
  await migrate(database);
  await fillWithJob(database);
  const prepared = await prepareTenants(database).then(
    () => 'ready',
    (error: Error & { code: string }) => error,
  );
  if (prepared instanceof Error) {
    expect(prepared).toMatchObject({ code: outcome });
    const advice = /run: (.*)$/.exec(prepared.message)?.[1] ?? '';
    await administrator.query(advice.replace('<this user>', owner.name));
    await prepareTenants(database);
  } else expect(prepared).toBe(outcome);
  const jobs = await asTenant(database, 'acme', (scope) => scope.query('select id from tallyman.jobs'));
  expect(jobs.rows).toHaveLength(1);
});

test('SEC-10: programs of the release before go on with the shared role until it is retired', async () => {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query(gunzipSync(readFileSync('test/fixtures/0.2.0/dump.sql.gz')).toString());
  // As a program of that release does at its start. And what a user gave to handlers.
  await client.query('select tallyman.prepare_tenants()');
  await client.query(
    'create table public.notes (n integer); grant select on public.notes to tallyman_tenant',
  );
  expect(await answer(url, jobsOfAcme('tallyman_tenant'))).toBeGreaterThan(0);

  const database = await connected(url);
  await migrate(database);
  expect(await answer(url, jobsOfAcme('tallyman_tenant'))).toBeGreaterThan(0);
  // A table of a later migration is there for both, so that a program of either release starts.
  await client.query('create table public.later (tenant_id text)');
  await client.query(`select tallyman.isolate('public.later')`);
  for (const role of ['tallyman_tenant', database.tenantRole])
    expect(await answer(url, ['begin', `set local role ${role}`, 'delete from public.later'])).toBe(0);
  await prepareTenants(database);
  await asTenant(database, 'acme', (scope) => scope.query('select n from public.notes'));

  const finding = async () => (await examine(database)).find(({ check }) => check === 'tenant-role');
  const found = await finding();
  expect(found?.level).toBe('warn');
  // As it says.
  await client.query(/(select .*);/.exec(found?.advice ?? '')?.[1] ?? '');
  expect(await finding()).toMatchObject({ level: 'ok' });
  expect(await answer(url, jobsOfAcme('tallyman_tenant'))).toBe(denied);
  expect(await answer(url, jobsOfAcme(database.tenantRole))).toBeGreaterThan(0);
});
