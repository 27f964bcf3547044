/**
 * Databases that were migrated once in a run. A copy takes a tenth of the time of a migration, and hundreds of tests need one.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { Database } from '../../src/engine/database/database.ts';
import { type Component, migrate } from '../../src/engine/database/migrate.ts';

/** The name of a database with the tables of these components. It is made where it does not exist yet. */
export async function templateFor(
  serverUrl: string,
  runId: string,
  components: readonly Component[],
): Promise<string> {
  const made = createHash('sha256')
    .update(components.map(({ folder }) => folder.href).join())
    .digest('hex');
  const name = `${prefixOf(runId)}${made.slice(0, 12)}`;
  await asAdministrator(serverUrl, async (client) => {
    const isReady = async () =>
      (await client.query('select from pg_database where datname = $1 and datistemplate', [name]))
        .rowCount === 1;
    if (await isReady()) return;
    // Test files run in several processes: one of them makes it.
    await client.query('select pg_advisory_lock(hashtext($1))', [name]);
    if (await isReady()) return;
    // Left by a process that has failed to migrate it.
    await client.query(`drop database if exists ${name}`);
    await client.query(`create database ${name}`);
    const url = new URL(serverUrl);
    url.pathname = `/${name}`;
    const database = await Database.connect({ url: url.toString(), poolSize: 1 });
    await migrate(database, { components }).finally(() => database.close());
    await client.query(`alter database ${name} is_template true`);
  });
  return name;
}

export const dropTemplates = (serverUrl: string, runId: string): Promise<void> =>
  asAdministrator(serverUrl, async (client) => {
    const { rows } = await client.query<{ datname: string }>(
      'select datname from pg_database where starts_with(datname, $1)',
      [prefixOf(runId)],
    );
    for (const { datname } of rows) {
      await client.query(`alter database ${datname} is_template false`);
      await client.query(`drop database ${datname}`);
    }
  });

export async function asAdministrator<T>(
  serverUrl: string,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  return work(client).finally(() => client.end());
}

const prefixOf = (runId: string): string => `template_${runId}_`;
