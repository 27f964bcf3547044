import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';
import { Database } from '../../src/engine/database/database.ts';
import { migrate } from '../../src/engine/database/migrate.ts';

export interface FreshDatabase {
  readonly url: string;
  readonly database: Database;
  drop(): Promise<void>;
}

/** An empty database of one's own on the test server. */
export async function emptyDatabase(): Promise<{ url: string; drop(): Promise<void> }> {
  const server = inject('postgresUrl');
  const name = `t_${randomBytes(6).toString('hex')}`;
  const admin = async (sql: string): Promise<void> => {
    const client = new pg.Client({ connectionString: server });
    await client.connect();
    await client.query(sql).finally(() => client.end());
  };
  await admin(`create database ${name}`);
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
