import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/engine/database/embedded/index.ts';
import { dropTemplates } from './templates.ts';

declare module 'vitest' {
  interface ProvidedContext {
    readonly postgresUrl: string;
    /** Of this run: names databases that are copied (`migratedDatabase`). */
    readonly runId: string;
  }
}

/**
 * One private PostgreSQL for each layer of the run (TEST_DATABASE_URL names another); each test makes a database of its own.
 * Nothing kills this server: tests of what survives that start one themselves.
 */
export default async function setup(project: TestProject) {
  const runId = randomBytes(4).toString('hex');
  project.provide('runId', runId);
  const given = process.env.TEST_DATABASE_URL;
  if (given) {
    project.provide('postgresUrl', given);
    return () => dropTemplates(given, runId);
  }
  const folder = await mkdtemp(join(await placeForData(), 'tallyman-test-'));
  // As root the server runs under another user, which must be able to enter.
  await chmod(folder, 0o755);
  const server = await startEmbedded({
    dataDir: join(folder, 'postgres'),
    settings: { max_connections: '300' },
  });
  project.provide('postgresUrl', server.url);
  return async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  };
}

const GiB = 1024 ** 3;

/** In memory where there is plenty: flushes cost the disk of a test machine more time than the tests themselves. */
async function placeForData(): Promise<string> {
  const memory = '/dev/shm';
  const found = await statfs(memory).catch(() => undefined);
  return found && found.bavail * found.bsize > 8 * GiB ? memory : tmpdir();
}
