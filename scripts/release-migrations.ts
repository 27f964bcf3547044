/**
 * Puts the migrations of the present version (package.json) on the list of released files, after which they can no
 * longer change. Run it as the last step before a version is published, and commit the lists.
 *
 *   node scripts/release-migrations.ts                  adds the new files; fails if a released one has changed
 *   node scripts/release-migrations.ts --unpublished    the present version is not out yet: lists its files anew
 *   node scripts/release-migrations.ts --check          writes nothing; fails if a file is not on the list (npm publish)
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { migrationFolders, problemsIn, release, unreleasedIn } from './released.ts';

const { values } = parseArgs({ options: { check: { type: 'boolean' }, unpublished: { type: 'boolean' } } });
const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
if (version.endsWith('-dev')) {
  console.error(
    `${version} is between two releases. Set the version in package.json first: see docs/releasing.md`,
  );
  process.exit(1);
}
const folders = migrationFolders('src');
const unpublished = values.unpublished ? version : undefined;

const problems = folders.flatMap((folder) => problemsIn(folder, unpublished));
if (values.check && problems.length === 0)
  problems.push(
    ...folders.flatMap((folder) =>
      unreleasedIn(folder).map(
        (name) =>
          `${join(folder, name)} is not on the list of released files. Run: node scripts/release-migrations.ts`,
      ),
    ),
  );
if (problems.length > 0) {
  console.error(problems.join('\n'));
  process.exit(1);
}
if (!values.check)
  for (const folder of folders)
    for (const name of release(folder, version, unpublished))
      console.log(`${join(folder, name)} is released with ${version}`);
