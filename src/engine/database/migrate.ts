import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { messageOf, TallymanError } from '../errors.ts';
import type { Database } from './database.ts';

/**
 * Plain numbered SQL files, each applied once, in a transaction of its own, under a lock.
 *
 * Safe while an older version of the program runs: a migration only adds. One that cannot (first line `-- breaking`)
 * makes older programs refuse to start, with a message, instead of failing later in the middle of work.
 */
export interface Migration {
  readonly component: string;
  readonly version: number;
  readonly name: string;
  readonly sql: string;
  readonly breaking: boolean;
}

export interface MigrationReport {
  readonly applied: readonly Migration[];
  readonly pending: readonly Migration[];
  readonly current: number;
}

/** A part of the product that owns a schema; its migrations lie in a folder of its own. */
export interface Component {
  readonly name: string;
  readonly folder: URL;
}

export const engineComponent: Component = {
  name: 'engine',
  folder: new URL('./migrations/', import.meta.url),
};

// Waiting longer for a lock would hold up everybody who comes after us on that table.
const lockTimeout = '5s';
const lockAttempts = 12;
const migrationLock = 0x7411_0001;

/** Brings the database up to date; with `dryRun` only tells what it would do. */
export async function migrate(
  database: Database,
  options: { dryRun?: boolean; components?: readonly Component[] } = {},
): Promise<MigrationReport> {
  const migrations = (await Promise.all((options.components ?? [engineComponent]).map(load))).flat();
  // It waits for others that migrate, and to rewrite a table takes as long as it takes.
  const client = await database.dedicated('tallyman migrate', { statementMs: 0 });
  try {
    if (!options.dryRun) await client.query('select pg_advisory_lock($1)', [migrationLock]);
    const known = await appliedMigrations(client);
    refuseForeign(migrations, known);
    const pending = migrations.filter((m) => !known.has(keyOf(m)));
    if (options.dryRun) return { applied: [], pending, current: known.size };
    await client.query(`
      create schema if not exists tallyman;
      create table if not exists tallyman.migrations (
        component text not null, version integer not null, name text not null, checksum text not null,
        breaking boolean not null, applied_at timestamptz not null default now(), primary key (component, version))`);
    for (const migration of pending) await apply(client, migration);
    return { applied: pending, pending: [], current: known.size + pending.length };
  } catch (error) {
    throw privilegeError(error) ?? error;
  } finally {
    await client.end();
  }
}

/** Refuses to go on with a database that this program was not made for; says which way it is out of step. */
export async function requireMigrated(
  database: Database,
  components: readonly Component[] = [engineComponent],
) {
  const { pending } = await migrate(database, { dryRun: true, components });
  if (pending.length > 0)
    throw new TallymanError(
      'NOT_MIGRATED',
      `The database lacks ${pending.length} migration(s), first "${pending[0]?.name}". Run: tallyman migrate`,
    );
}

async function load(component: Component): Promise<Migration[]> {
  const files = (await readdir(fileURLToPath(component.folder))).filter((f) => f.endsWith('.sql')).sort();
  return Promise.all(
    files.map(async (file) => {
      const sql = await readFile(new URL(file, component.folder), 'utf8');
      return {
        component: component.name,
        version: Number.parseInt(file, 10),
        name: file.replace(/\.sql$/, ''),
        sql,
        breaking: sql.startsWith('-- breaking'),
      };
    }),
  );
}

interface Applied {
  readonly component: string;
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
  readonly breaking: boolean;
}

type Client = Awaited<ReturnType<Database['dedicated']>>;

async function appliedMigrations(client: Client): Promise<Map<string, Applied>> {
  const { rows } = await client.query<{ exists: boolean }>(
    `select to_regclass('tallyman.migrations') is not null as exists`,
  );
  if (!rows[0]?.exists) return new Map();
  const applied = await client.query<Applied>(
    'select component, version, name, checksum, breaking from tallyman.migrations',
  );
  return new Map(applied.rows.map((row) => [keyOf(row), row]));
}

const keyOf = (m: { component: string; version: number }): string => `${m.component}/${m.version}`;
const checksum = (sql: string): string => createHash('sha256').update(sql).digest('hex').slice(0, 16);

function refuseForeign(ours: readonly Migration[], known: ReadonlyMap<string, Applied>): void {
  const mine = new Map(ours.map((m) => [keyOf(m), m]));
  const components = new Set(ours.map((m) => m.component));
  for (const row of known.values()) {
    if (!components.has(row.component)) continue;
    const migration = mine.get(keyOf(row));
    if (!migration && row.breaking)
      throw new TallymanError(
        'DATABASE_TOO_NEW',
        `The database was changed by a newer Tallyman ("${row.name}") in a way this version cannot work with. Update this program.`,
      );
    if (migration && checksum(migration.sql) !== row.checksum)
      throw new TallymanError(
        'MIGRATION_CHANGED',
        `Migration "${row.name}" was applied with other contents than this program has. It must not be edited after release.`,
      );
  }
}

async function apply(client: Client, migration: Migration): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await client.query('begin');
      await client.query(`set local lock_timeout = '${lockTimeout}'`);
      await client.query(migration.sql);
      await client.query(
        'insert into tallyman.migrations (component, version, name, checksum, breaking) values ($1, $2, $3, $4, $5)',
        [migration.component, migration.version, migration.name, checksum(migration.sql), migration.breaking],
      );
      await client.query('commit');
      return;
    } catch (error) {
      await client.query('rollback');
      if ((error as { code?: string }).code === '55P03' && attempt < lockAttempts) continue;
      throw (
        privilegeError(error) ??
        new TallymanError('MIGRATION_FAILED', `Migration "${migration.name}" failed: ${messageOf(error)}`, {
          cause: error,
        })
      );
    }
  }
}

function privilegeError(error: unknown): TallymanError | undefined {
  if ((error as { code?: string }).code !== '42501') return undefined;
  return new TallymanError(
    'MISSING_PRIVILEGES',
    `The database user may not do this: ${messageOf(error)}. It must own schema "tallyman", or be allowed to create it (grant create on database … to …).`,
    { cause: error },
  );
}
