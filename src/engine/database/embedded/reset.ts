import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { TallymanError } from '../../errors.ts';
import { type Logger, silentLogger } from '../../logger.ts';
import { type Area, missing, openArea, passwordOf } from './area.ts';
import { platformPackage, usableBinaries } from './binaries.ts';
import { removeCluster } from './cluster.ts';
import { DEFAULT_SYSTEM_DIR } from './embedded.ts';
import { urlFor } from './login.ts';
import { claimOwnership, type Ownership } from './ownership.ts';
import { stopOrphan } from './postmaster.ts';
import { postmastersOf, readPostmasterFile } from './postmaster-file.ts';

export interface ResetOptions {
  readonly dataDir: string;
  readonly logger?: Logger;
  /** As for startEmbedded. */
  readonly systemDir?: string;
}

/** Whether there is a database in the folder. */
export async function hasEmbeddedData(dataDir: string): Promise<boolean> {
  return (await stat(join(dataDir, 'data')).catch(missing)) !== undefined;
}

/**
 * Deletes the database of a folder; the next start makes an empty one. Throws EMBEDDED_IN_USE while a process runs its
 * server, or uses one whose owner was killed. While it deletes it owns the folder, so that no other process can start.
 */
export async function resetEmbedded(options: ResetOptions): Promise<void> {
  const { dataDir, systemDir = DEFAULT_SYSTEM_DIR, logger = silentLogger } = options;
  const area = await openArea(dataDir, systemDir);
  const ownership = await own(area);
  try {
    const [orphan] = await postmastersOf(area);
    if (orphan !== undefined) {
      const users = await sessionsOf(area);
      if (users !== 0) throw inUse(area, `process ${orphan}, which ${describeUsers(users)}`);
      await stopOrphan(area, await usableBinaries(await platformPackage(), area.account, systemDir), logger);
    }
    await removeCluster(area);
  } finally {
    await ownership.release();
  }
}

async function own(area: Area): Promise<Ownership> {
  try {
    return await claimOwnership(area);
  } catch (error) {
    if (!(error instanceof TallymanError) || error.code !== 'EMBEDDED_IN_USE') throw error;
    const { pid, host } = error.details ?? {};
    throw inUse(area, pid === undefined ? 'another process' : `process ${pid} on ${host}`, error);
  }
}

const inUse = (area: Area, who: string, cause?: unknown): TallymanError =>
  new TallymanError(
    'EMBEDDED_IN_USE',
    `Nothing was deleted: the embedded PostgreSQL in ${area.asked} is run by ${who}. Stop the programs that use it, then run this again.`,
    { cause, details: { dataDir: area.asked } },
  );

const describeUsers = (count: number | undefined): string =>
  count === undefined ? 'does not answer' : `has ${count} connection${count === 1 ? '' : 's'}`;

/** How many sessions there are on a server that a killed process left running; undefined: it does not say. */
async function sessionsOf(area: Area): Promise<number | undefined> {
  const port = Number((await readPostmasterFile(area))?.text.split('\n')[3]);
  const client = new pg.Client({
    connectionString: urlFor(port, await passwordOf(area, true)),
    ssl: false,
    connectionTimeoutMillis: 3_000,
  });
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query<{ count: number }>(
      `select count(*)::integer as count from pg_stat_activity
        where backend_type = 'client backend' and pid <> pg_backend_pid()`,
    );
    return rows[0]?.count;
  } catch {
    return undefined;
  } finally {
    await client.end().catch(() => {});
  }
}
