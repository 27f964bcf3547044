import pg from 'pg';
import { TallymanError } from '../../errors.ts';
import type { Area } from './area.ts';
import { SUPERUSER } from './cluster.ts';
import { HOST } from './port.ts';

const DATABASE = 'tallyman';

export const urlFor = (port: number, password: string): string =>
  `postgres://${SUPERUSER}:${encodeURIComponent(password)}@${HOST}:${port}/${DATABASE}`;

const INVALID_PASSWORD = '28P01';

/** Proves that the server takes our login, and makes the database at the first start (or after one cut short). */
export async function ensureDatabase(area: Area, port: number, password: string): Promise<void> {
  // Every field named, so that no PG* variable of the user's gets in. Not to `tallyman` itself: a login to a
  // database that is not there yet would stand in the log as FATAL.
  const client = new pg.Client({
    host: HOST,
    port,
    user: SUPERUSER,
    password,
    database: 'postgres',
    ssl: false,
  });
  // A server that dies meanwhile is reported by the query; without a listener it would end our process.
  client.on('error', () => {});
  try {
    await client.connect();
    const found = await client.query('select from pg_database where datname = $1', [DATABASE]);
    if (found.rowCount === 0) await client.query(`create database ${DATABASE}`);
  } catch (error) {
    if ((error as { code?: string }).code !== INVALID_PASSWORD) throw error;
    throw new TallymanError(
      'EMBEDDED_PASSWORD_WRONG',
      `The database in ${area.data} does not take the password in ${area.folder}/password; one of the two was replaced. ` +
        `Put the right file back, or remove ${area.folder} to start with an empty database.`,
      { cause: error, details: { dataDir: area.asked } },
    );
  } finally {
    await client.end().catch(() => {});
  }
}
