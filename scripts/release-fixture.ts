/**
 * Writes what the upgrade test starts from (test/host/upgrade.test.ts): a database of the present version with some of
 * everything in it, and the calls that its workers make. Run it once for each release, after
 * scripts/release-migrations.ts, and commit the folder; it is never written again.
 *
 *   node scripts/release-fixture.ts      test/fixtures/<version>/dump.sql.gz and calls.json
 */
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { startEmbedded } from '../src/engine/database/embedded/index.ts';
import { engineComponent } from '../src/engine/database/migrate.ts';
import { silentLogger } from '../src/engine/logger.ts';
import { Tallyman } from '../src/engine/tallyman.ts';
import { version } from '../src/engine/version.ts';
import { apps } from '../src/host/apps.ts';
import { componentsOf } from '../src/host/components.ts';
import { callsOfWorkers } from './fixture/calls.ts';
import { dump } from './fixture/dump.ts';
import { furnish } from './fixture/scene.ts';

if (version().endsWith('-dev')) {
  console.error(
    `${version()} is between two releases. Set the version in package.json first: see docs/releasing.md`,
  );
  process.exit(1);
}
const folder = join('test/fixtures', version());
if (existsSync(folder)) {
  console.error(
    `${folder} exists. A release has one fixture; remove the folder if this version is not published yet.`,
  );
  process.exit(1);
}

/** Ids of workers name the host, and stacks name folders: the fixture is the same wherever it is made. */
const withoutMachine = (sql: string): string =>
  sql
    .replaceAll(new RegExp(`${hostname()}-${process.pid}-[0-9a-f]{12}`, 'g'), 'worker')
    .replaceAll(process.cwd(), '');

const temporary = await mkdtemp(join(tmpdir(), 'tallyman-fixture-'));
const server = await startEmbedded({ dataDir: join(temporary, 'data') });
try {
  const components = [engineComponent, ...componentsOf(apps)];
  const tallyman = await Tallyman.open({
    databaseUrl: server.url,
    migrate: true,
    components: componentsOf(apps),
    logger: silentLogger,
    housekeeping: false,
  });
  await furnish(tallyman);
  const sql = withoutMachine(await dump(tallyman.database, components));
  await tallyman.close();
  await mkdir(folder, { recursive: true });
  // Compressed: it is a copy of every SQL file, which a search through the repository must not find twice.
  await writeFile(join(folder, 'dump.sql.gz'), gzipSync(sql));
  await writeFile(join(folder, 'calls.json'), `${JSON.stringify(await callsOfWorkers(), null, 2)}\n`);
  console.log(`${folder} is written. Commit it.`);
} finally {
  await server.stop();
  await rm(temporary, { recursive: true, force: true });
}
