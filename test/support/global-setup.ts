import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/engine/database/embedded/index.ts';

declare module 'vitest' {
  interface ProvidedContext {
    readonly postgresUrl: string;
  }
}

/**
 * One private PostgreSQL for each layer of the run (TEST_DATABASE_URL names another); each test makes a database of its own.
 * Nothing kills this server: tests of what survives that start one themselves.
 */
export default async function setup(project: TestProject) {
  const given = process.env.TEST_DATABASE_URL;
  if (given) {
    project.provide('postgresUrl', given);
    return;
  }
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-test-'));
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
