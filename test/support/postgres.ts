import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { inject, onTestFinished } from 'vitest';
import { Database } from '../../src/engine/database/database.ts';
import { type EmbeddedPostgres, startEmbedded } from '../../src/engine/database/embedded/index.ts';
import { type Component, engineComponent } from '../../src/engine/database/migrate.ts';
import { asAdministrator, templateFor } from './templates.ts';

export interface OwnDatabase {
  readonly url: string;
  drop(): Promise<void>;
}

export interface FreshDatabase extends OwnDatabase {
  readonly database: Database;
}

/** An empty database of one's own on the test server, in UTF-8 unless another encoding is named. */
export const emptyDatabase = (encoding?: string): Promise<OwnDatabase> =>
  ownDatabase(encoding ? `encoding '${encoding}' locale 'C' template template0` : '');

/** One with the tables of these components; the engine's if none are named. */
export async function migratedDatabase(
  components: readonly Component[] = [engineComponent],
): Promise<OwnDatabase> {
  const template = await templateFor(inject('postgresUrl'), inject('runId'), components);
  const own = await ownDatabase(`template ${template}`);
  // As after a migration: the role that came with the copy is that of the template.
  await asAdministrator(own.url, (client) => client.query('select tallyman.prepare_tenant_role()'));
  return own;
}

async function ownDatabase(how: string): Promise<OwnDatabase> {
  const name = `t_${randomBytes(6).toString('hex')}`;
  await administer(`create database ${name} ${how}`);
  const url = new URL(inject('postgresUrl'));
  url.pathname = `/${name}`;
  return { url: url.toString(), drop: () => dropDatabase(name) };
}

export interface DatabaseCopy {
  readonly url: string;
  rows<R>(sql: string): Promise<R[]>;
}

/** A copy of a database that nobody is connected to, gone with the test. */
export async function copyOf(url: string): Promise<DatabaseCopy> {
  const name = `t_${randomBytes(6).toString('hex')}`;
  await administer(`create database ${name} template ${new URL(url).pathname.slice(1)}`);
  onTestFinished(() => dropDatabase(name));
  const copy = new URL(url);
  copy.pathname = `/${name}`;
  return {
    url: copy.toString(),
    rows: async <R>(sql: string) => {
      const client = new pg.Client({ connectionString: copy.toString() });
      await client.connect();
      return (await client.query(sql).finally(() => client.end())).rows as R[];
    },
  };
}

const administer = (sql: string): Promise<unknown> =>
  asAdministrator(inject('postgresUrl'), (client) => client.query(sql));

async function dropDatabase(name: string): Promise<void> {
  await asAdministrator(inject('postgresUrl'), async (client) => {
    // Connections that are being closed: to terminate them is an error that nobody listens for any more.
    const open = 'select 1 from pg_stat_activity where datname = $1';
    for (let look = 0; look < 10 && (await client.query(open, [name])).rowCount !== 0; look += 1)
      await sleep(30);
    // A role belongs to the server, so it stays when its database goes.
    const { rows } = await client.query<{ role: string }>(
      `select r.rolname as role from pg_database d join pg_roles r on r.rolname = 'tallyman_tenant_' || d.oid
        where d.datname = $1`,
      [name],
    );
    await client.query(`drop database if exists ${name} with (force)`);
    for (const { role } of rows) await client.query(`drop role if exists ${role}`);
  });
}

/** The same, with a pool on it. */
export async function freshDatabase(components?: readonly Component[]): Promise<FreshDatabase> {
  const { url, drop } = await migratedDatabase(components);
  const database = await Database.connect({ url, poolSize: 12 });
  return {
    url,
    database,
    drop: async () => {
      await database.close();
      await drop();
    },
  };
}

/** A server of one's own, to be killed and restarted, gone with the test. */
export async function privateServer(): Promise<EmbeddedPostgres> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-server-'));
  const server = await startEmbedded({
    dataDir: join(folder, 'postgres'),
    settings: { max_connections: '100' },
  });
  onTestFinished(async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });
  return server;
}
