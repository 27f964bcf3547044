import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
  const server = inject('postgresUrl');
  const name = `t_${randomBytes(6).toString('hex')}`;
  const admin = async (sql: string): Promise<void> => {
    const client = new pg.Client({ connectionString: server });
    await client.connect();
    await client.query(sql).finally(() => client.end());
  };
  const inEncoding = encoding ? ` encoding '${encoding}' locale 'C' template template0` : '';
  await admin(`create database ${name}${inEncoding}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return { url: url.toString(), drop: () => admin(`drop database if exists ${name} with (force)`) };
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
