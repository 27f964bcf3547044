import type { Change, ComponentFiles } from './component.ts';
import type { Database, Queryable } from './database.ts';
import { compareReleases } from './release.ts';

/** What a database says about the files that were applied to it. */
export interface State {
  readonly migrations: ReadonlyMap<string, AppliedMigration>;
  readonly functions: ReadonlyMap<string, AppliedFunctions>;
}

export interface AppliedMigration {
  readonly component: string;
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
  readonly breaking: boolean;
  /** Null: by a program that did not record it. */
  readonly release: string | null;
}

export interface AppliedFunctions {
  readonly component: string;
  readonly name: string;
  /** Empty: to be applied again, whatever the text is. */
  readonly checksum: string;
  readonly release: string;
}

export const bookkeeping = `
  create schema if not exists tallyman;
  create table if not exists tallyman.migrations (
    component text not null, version integer not null, name text not null, checksum text not null,
    breaking boolean not null, release text, applied_at timestamptz not null default now(),
    primary key (component, version));
  create table if not exists tallyman.functions (
    component text not null, name text not null, checksum text not null, release text not null,
    applied_at timestamptz not null default now(), primary key (component, name))`;

export type Client = Awaited<ReturnType<Database['dedicated']>>;

export async function readState(client: Queryable): Promise<State> {
  const { rows } = await client.query<{ migrations: boolean; functions: boolean }>(
    `select to_regclass('tallyman.migrations') is not null as migrations,
            to_regclass('tallyman.functions') is not null as functions`,
  );
  // Through JSON: a database of version 0.1.0 has no column `release`, and must still get as far as its error message.
  const migrations = rows[0]?.migrations
    ? await client.query<AppliedMigration>(
        `select m.component, m.version, m.name, m.checksum, m.breaking, to_json(m) ->> 'release' as release
           from tallyman.migrations m order by m.component, m.version`,
      )
    : { rows: [] };
  const functions = rows[0]?.functions
    ? await client.query<AppliedFunctions>(
        'select component, name, checksum, release from tallyman.functions',
      )
    : { rows: [] };
  return {
    migrations: new Map(migrations.rows.map((row) => [migrationKey(row), row])),
    functions: new Map(functions.rows.map((row) => [functionsKey(row), row])),
  };
}

export const migrationKey = (m: { component: string; version: number }): string =>
  `${m.component}/${m.version}`;
export const functionsKey = (f: { component: string; name: string }): string => `${f.component}/${f.name}`;

export async function record(client: Client, change: Change, release: string): Promise<void> {
  const { component, name, checksum } = change;
  if (change.type === 'functions') {
    await client.query(
      `insert into tallyman.functions (component, name, checksum, release) values ($1, $2, $3, $4)
       on conflict (component, name) do update
         set checksum = excluded.checksum, release = excluded.release, applied_at = excluded.applied_at`,
      [component, name, checksum, release],
    );
    return;
  }
  await client.query(
    'insert into tallyman.migrations (component, version, name, checksum, breaking, release) values ($1, $2, $3, $4, $5, $6)',
    [component, change.version, name, checksum, change.breaking, release],
  );
  // In the same transaction: a program that dies before the functions leaves them to the next one.
  await client.query(`update tallyman.functions set checksum = '' where component = $1`, [component]);
}

/** A text that this release has, too, counts as this release's: a patch of an older one must not replace it. */
export async function confirmTexts(client: Client, files: ComponentFiles, release: string): Promise<void> {
  const { rows } = await client.query<AppliedFunctions>(
    'select component, name, checksum, release from tallyman.functions where component = $1 and release <> $2',
    [files.name, release],
  );
  const same = rows.filter(
    (row) =>
      compareReleases(row.release, release) < 0 &&
      files.functions.some(({ name, checksum }) => name === row.name && checksum === row.checksum),
  );
  if (same.length > 0)
    await client.query(
      'update tallyman.functions set release = $1 where component = $2 and name = any ($3)',
      [release, files.name, same.map(({ name }) => name)],
    );
}
