import { appendFile, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { migrationFolders, problemsIn, release, unreleasedIn } from '../../../scripts/released.ts';
import { engineComponent } from '../../../src/engine/database/migrate.ts';
import { apps } from '../../../src/host/apps.ts';
import { componentsOf } from '../../../src/host/components.ts';

const sources = join(import.meta.dirname, '../../../src');

test.each(migrationFolders(sources))('no released migration has changed in %s', (folder) => {
  expect(problemsIn(folder)).toEqual([]);
});

test('every component is among them', () => {
  const known = migrationFolders(sources).map((folder) => `${folder}/`);
  for (const { folder } of [engineComponent, ...componentsOf(apps)]) expect(known).toContain(folder.pathname);
});

async function folderWith(...names: string[]): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'tallyman-released-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const folder = join(root, 'app/migrations');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'released.json'), '{}');
  for (const name of names) await writeFile(join(folder, name), `select '${name}';\n`);
  expect(migrationFolders(root)).toEqual([folder]);
  return folder;
}

test('a file may change until it is released; then it may neither change nor go', async () => {
  const folder = await folderWith('0001_a.sql', '0002_b.sql');
  await appendFile(join(folder, '0001_a.sql'), 'select 1;');
  expect(problemsIn(folder)).toEqual([]);
  expect(unreleasedIn(folder)).toEqual(['0001_a.sql', '0002_b.sql']);
  expect(release(folder, '0.2.0')).toEqual(['0001_a.sql', '0002_b.sql']);
  expect(problemsIn(folder)).toEqual([]);

  await appendFile(join(folder, '0001_a.sql'), ' ');
  await rename(join(folder, '0002_b.sql'), join(folder, '0003_b.sql'));
  expect(problemsIn(folder)).toEqual([
    expect.stringMatching(
      /0001_a\.sql was released with 0\.2\.0 and has changed since.*write a new numbered file/,
    ),
    expect.stringMatching(/0002_b\.sql was released with 0\.2\.0 and is gone.*put it back/),
  ]);
  // As long as 0.2.0 is not out its files can be listed anew; those of 0.1.0 could not.
  expect(problemsIn(folder, '0.1.0')).toHaveLength(2);
  expect(problemsIn(folder, '0.2.0')).toEqual([]);
  expect(release(folder, '0.2.0', '0.2.0')).toEqual(['0001_a.sql', '0003_b.sql']);
  expect(problemsIn(folder)).toEqual([]);
});

test('a later release adds its files and keeps the others as they are listed', async () => {
  const folder = await folderWith('0001_a.sql');
  release(folder, '0.2.0');
  await writeFile(join(folder, '0002_b.sql'), 'select 2;');
  expect(release(folder, '0.3.0')).toEqual(['0002_b.sql']);
  await appendFile(join(folder, '0001_a.sql'), ' ');
  expect(problemsIn(folder, '0.3.0')).toEqual([
    expect.stringContaining('0001_a.sql was released with 0.2.0'),
  ]);
});

test('numbers go up: none twice, and no new file below what is released', async () => {
  const folder = await folderWith('0001_a.sql', '0003_c.sql');
  release(folder, '0.2.0');
  await writeFile(join(folder, '0002_b.sql'), 'select 2;');
  expect(problemsIn(folder)).toEqual([
    expect.stringMatching(/0002_b\.sql is new, but its number is not above 3/),
  ]);
  await rename(join(folder, '0002_b.sql'), join(folder, '0003_d.sql'));
  expect(problemsIn(folder)).toEqual([expect.stringMatching(/0003_d\.sql has the number of 0003_c\.sql/)]);
});

test('a list that is gone is missed', async () => {
  const folder = await folderWith('0001_a.sql');
  await rm(join(folder, 'released.json'));
  expect(problemsIn(folder)).toEqual([expect.stringContaining('released.json is missing')]);
});
