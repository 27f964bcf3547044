/**
 * Root's clone often lies under a home that only root can enter, while the server runs under another account
 * and must reach its data by every folder above it. Opening root's home is not ours to do, so the data lives
 * in `<systemDir>/postgres/<name>` and the folder asked for is a link to it:
 *
 *     /root/plant/.tallyman/postgres -> /var/lib/tallyman/postgres/plant-5f0c…
 *
 * The link is the only connection between the two. The name is random, not made from the path: if you delete
 * `.tallyman` to start again, you get an empty database, not the old one. The data then stays under
 * systemDir, with the path it was made for in `belongs-to`; nothing here deletes a database.
 */
import { randomBytes } from 'node:crypto';
import { chmod, lstat, mkdir, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { TallymanError } from '../../errors.ts';
import { type Account, firstBarred } from './account.ts';

/** A folder of root's that nobody else can write to: its content is run, or trusted, later. */
export async function rootFolder(path: string, account: Account, mode = 0o755): Promise<string> {
  const made = await mkdir(path, { recursive: true });
  if (made !== undefined) await chmod(path, mode);
  const stats = await lstat(path);
  if (!stats.isDirectory() || stats.uid !== 0 || (stats.mode & 0o022) !== 0) {
    throw new TallymanError(
      'EMBEDDED_SYSTEM_DIR',
      `${path} must be a folder that belongs to root and that nobody else can write to, because the embedded ` +
        'PostgreSQL is kept in it when it is started as root. Correct it (chown root, chmod go-w), start as an ' +
        'ordinary user, or set DATABASE_URL.',
      { details: { path } },
    );
  }
  const barred = await firstBarred(path, account);
  if (barred !== undefined) {
    throw new TallymanError(
      'EMBEDDED_SYSTEM_DIR',
      `PostgreSQL runs under the account ${account.name}, which may not enter ${barred}. ` +
        `Allow it (chmod o+x ${barred}), start as an ordinary user, or set DATABASE_URL.`,
      { details: { path, barred } },
    );
  }
  return path;
}

const BELONGS_TO = 'belongs-to';

/** Makes an empty folder under systemDir and the link to it. When another process was first, its link stands. */
export async function relocate(asked: string, account: Account, systemDir: string): Promise<void> {
  await rootFolder(systemDir, account);
  const all = await rootFolder(join(systemDir, 'postgres'), account, 0o711);
  // asked is usually <project>/.tallyman/postgres: the project's name tells an operator the most.
  const hint = basename(dirname(dirname(asked))).replace(/[^A-Za-z0-9_-]/g, '') || 'tallyman';
  const folder = join(all, `${hint}-${randomBytes(8).toString('hex')}`);
  await mkdir(folder, { mode: 0o711 });
  await chmod(folder, 0o711);
  await writeFile(join(folder, BELONGS_TO), `${asked}\n`, { mode: 0o600 });
  try {
    await symlink(folder, asked);
  } catch (error) {
    await rm(folder, { recursive: true });
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/**
 * A copied clone (`cp -a`) carries the link, and both would write to one database without anybody having said so.
 * A moved clone is different: its old place no longer points here.
 */
export async function checkRelocation(folder: string, asked: string, systemDir: string): Promise<void> {
  const all = await realpath(join(systemDir, 'postgres')).catch(() => undefined);
  if (all === undefined || dirname(folder) !== all) return;
  const note = join(folder, BELONGS_TO);
  const home = (await readFile(note, 'utf8').catch(() => '')).trim();
  // The same place by another path (a link above it) is the same place.
  const placeOf = async (path: string): Promise<string | undefined> =>
    realpath(dirname(path)).then(
      (parent) => join(parent, basename(path)),
      () => undefined,
    );
  const homePlace = home === '' ? undefined : await placeOf(home);
  if (homePlace !== undefined && homePlace === (await placeOf(asked))) return;
  if (homePlace !== undefined && (await realpath(homePlace).catch(() => undefined)) === folder) {
    throw new TallymanError(
      'EMBEDDED_DATA_SHARED',
      `${asked} links to ${folder}, the database of ${home}; it was probably copied along with its folder. ` +
        `Remove the link ${asked} to start with an empty database of its own, or copy ${folder} and link to the copy.`,
      { details: { dataDir: asked, folder, belongsTo: home } },
    );
  }
  await writeFile(note, `${asked}\n`, { mode: 0o600 });
}
