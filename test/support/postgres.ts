import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { inject, onTestFinished } from 'vitest';
import { Database } from '../../src/engine/database/database.ts';
import { type EmbeddedPostgres, startEmbedded } from '../../src/engine/database/embedded/index.ts';
import { migrate } from '../../src/engine/database/migrate.ts';

export interface FreshDatabase {
  readonly url: string;
  readonly database: Database;
  drop(): Promise<void>;
}

/** An empty database of one's own on the test server, in UTF-8 unless another encoding is named. */
export async function emptyDatabase(encoding?: string): Promise<{ url: string; drop(): Promise<void> }> {
  const name = `t_${randomBytes(6).toString('hex')}`;
  const inEncoding = encoding ? ` encoding '${encoding}' locale 'C' template template0` : '';
  await administer(`create database ${name}${inEncoding}`);
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

const administer = (sql: string): Promise<unknown> => asAdministrator((client) => client.query(sql));

async function dropDatabase(name: string): Promise<void> {
  await asAdministrator(async (client) => {
    // Connections that are being closed: to terminate them is an error that nobody listens for any more.
    const open = 'select 1 from pg_stat_activity where datname = $1';
    for (let look = 0; look < 10 && (await client.query(open, [name])).rowCount !== 0; look += 1)
      await sleep(30);
    await client.query(`drop database if exists ${name} with (force)`);
  });
}

async function asAdministrator<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: inject('postgresUrl') });
  await client.connect();
  return work(client).finally(() => client.end());
}

/** The same, migrated, with a pool on it. */
export async function freshDatabase(): Promise<FreshDatabase> {
  const { url, drop } = await emptyDatabase();
  const database = await Database.connect({ url, poolSize: 12 });
  await migrate(database);
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
