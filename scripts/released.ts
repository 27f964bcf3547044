/**
 * The list of released migrations: `released.json` in each folder of migrations names every file that was published,
 * with the release it first came with and its checksum. A file on the list never changes again: databases have it.
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface ReleasedFile {
  readonly release: string;
  readonly sha256: string;
}

export type ReleasedList = Readonly<Record<string, ReleasedFile>>;

const listIn = (folder: string): string => join(folder, 'released.json');

/** Every folder of numbered files below a folder of sources. */
export const migrationFolders = (sources: string): string[] =>
  globSync('**/migrations', { cwd: sources })
    .map((folder) => join(sources, folder))
    .sort();

/** The list, without the files of a version that has not been published yet. */
function listOf(folder: string, unpublished?: string): ReleasedList {
  const list = JSON.parse(readFileSync(listIn(folder), 'utf8')) as ReleasedList;
  return Object.fromEntries(Object.entries(list).filter(([, file]) => file.release !== unpublished));
}

function presentIn(folder: string): ReadonlyMap<string, string> {
  const names = readdirSync(folder).filter((name) => name.endsWith('.sql'));
  return new Map(
    names.sort().map((name) => [
      name,
      createHash('sha256')
        .update(readFileSync(join(folder, name)))
        .digest('hex'),
    ]),
  );
}

const numberOf = (name: string): number => Number.parseInt(name, 10);

/** What is wrong with a folder, each with what to do about it. */
export function problemsIn(folder: string, unpublished?: string): string[] {
  if (!existsSync(listIn(folder)))
    return [
      `${listIn(folder)} is missing. Bring it back; for a new component, make it with {} as its content.`,
    ];
  const released = listOf(folder, unpublished);
  const present = presentIn(folder);
  const last = Math.max(0, ...Object.keys(released).map(numberOf));
  const problems: string[] = [];
  for (const [name, { release, sha256 }] of Object.entries(released)) {
    const path = join(folder, name);
    if (!present.has(name))
      problems.push(
        `${path} was released with ${release} and is gone. Databases have it: put it back as it was.`,
      );
    else if (present.get(name) !== sha256)
      problems.push(
        `${path} was released with ${release} and has changed since. Databases that have it would refuse this ` +
          'program (MIGRATION_CHANGED): undo the change, and write a new numbered file that makes it.',
      );
  }
  for (const name of present.keys()) {
    const twin = [...present.keys()].find((other) => other < name && numberOf(other) === numberOf(name));
    if (twin !== undefined)
      problems.push(`${join(folder, name)} has the number of ${twin}. Give it the next free one.`);
    else if (!(name in released) && !(numberOf(name) > last))
      problems.push(
        `${join(folder, name)} is new, but its number is not above ${last}, the last one released: databases would ` +
          'apply it in another order than new ones do. Give it the next free number.',
      );
  }
  return problems;
}

/** Files that are not on the list yet. */
export function unreleasedIn(folder: string, unpublished?: string): string[] {
  const released = listOf(folder, unpublished);
  return [...presentIn(folder).keys()].filter((name) => !(name in released));
}

/** Puts the files that are not on the list yet on it. Returns their names. */
export function release(folder: string, version: string, unpublished?: string): string[] {
  const added = unreleasedIn(folder, unpublished);
  const present = presentIn(folder);
  const list: Record<string, ReleasedFile> = { ...listOf(folder, unpublished) };
  for (const name of added) list[name] = { release: version, sha256: present.get(name) ?? '' };
  writeFileSync(listIn(folder), `${JSON.stringify(list, null, 2)}\n`);
  return added;
}
