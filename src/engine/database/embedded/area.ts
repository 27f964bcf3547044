import { randomBytes } from 'node:crypto';
import { constants, type Stats } from 'node:fs';
import {
  access,
  chmod,
  chown,
  lstat,
  mkdir,
  open,
  readFile,
  realpath,
  rename,
  rmdir,
  stat,
} from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { TallymanError } from '../../errors.ts';
import { type Account, accountForNew, firstBarred, isRoot, ownerOf } from './account.ts';
import { checkRelocation, relocate } from './relocation.ts';

/**
 * The folder one embedded server lives in:
 *
 *     data/        what initdb made; belongs to the account the server runs under
 *     password     of the superuser, 0600
 *     port         the one it had last
 *     server.log   what the server said, and server.log.1 before it
 *     owner/       which process runs it (ownership.ts)
 *     init-*       an initdb under way, or one that was killed (cluster.ts)
 */
export interface Area {
  /** What the caller asked for. `folder` differs when it is, or was replaced by, a link. */
  readonly asked: string;
  readonly folder: string;
  readonly data: string;
  readonly log: string;
  /** Under which the server runs; undefined: as we do. */
  readonly account: Account | undefined;
  /** Whose the files beside `data` are: not root's when root works in a user's folder. */
  readonly keeper: Pick<Stats, 'uid' | 'gid'>;
}

export const missing = <T>(error: NodeJS.ErrnoException): T | undefined => {
  if (error.code === 'ENOENT') return undefined;
  throw error;
};

const areaIn = (asked: string, folder: string, account: Account | undefined, keeper: Stats): Area => ({
  asked,
  folder,
  data: join(folder, 'data'),
  log: join(folder, 'server.log'),
  account,
  keeper: { uid: keeper.uid, gid: keeper.gid },
});

/** Finds or makes the folder and decides which account its server runs under. `systemDir` matters to root only. */
export async function openArea(dataDir: string, systemDir: string): Promise<Area> {
  const asked = resolve(dataDir);
  return isRoot() ? openAsRoot(asked, systemDir) : openAsUser(asked);
}

async function openAsUser(asked: string): Promise<Area> {
  try {
    await mkdir(asked, { recursive: true, mode: 0o700 });
    await access(asked, constants.R_OK | constants.W_OK | constants.X_OK);
    const folder = await realpath(asked);
    const data = await stat(join(folder, 'data')).catch(missing<Stats>);
    if (data && process.geteuid && data.uid !== process.geteuid()) throw notYours(asked, data.uid);
    return areaIn(asked, folder, undefined, await stat(folder));
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'EACCES' || code === 'EPERM') throw notYours(asked, undefined, error);
    throw error;
  }
}

const notYours = (asked: string, uid: number | undefined, cause?: unknown): TallymanError =>
  new TallymanError(
    'EMBEDDED_NOT_YOURS',
    `The embedded PostgreSQL's folder ${asked} ${uid === undefined ? 'is closed to this user' : `holds a database of uid ${uid}`}; ` +
      'it was probably first started as another user or as root. Start as that user, or use another folder.',
    { cause, details: { dataDir: asked } },
  );

async function openAsRoot(asked: string, systemDir: string): Promise<Area> {
  // More than one round only when another process makes or replaces the folder between our steps.
  for (let round = 0; round < 10; round++) {
    const there = await lstat(asked).catch(missing<Stats>);
    if (!there) {
      await makeFolder(asked, systemDir);
      continue;
    }
    const folder = await realpath(asked).catch((error) => {
      throw new TallymanError(
        'EMBEDDED_DATA_GONE',
        `${asked} is a link to a folder that is no longer there. Bring that folder back, or remove the link to start with an empty database.`,
        { cause: error, details: { dataDir: asked } },
      );
    });
    await checkRelocation(folder, asked, systemDir);
    const keeper = await stat(folder);
    const data = await stat(join(folder, 'data')).catch(missing<Stats>);
    if (data?.uid === 0) throw ownedByRoot(folder);
    const account = data ? await ownerOf(data) : await accountForNew(keeper);
    // The folder is ours, so we may let other accounts pass through it. The folders above are not ours to change.
    if (keeper.uid === 0) await chmod(folder, 0o711);
    const barred = account && (await firstBarred(folder, account));
    if (!barred) return areaIn(asked, folder, account, keeper);
    // An empty folder is replaced by a link. One with content belongs to somebody and stays.
    if (!there.isDirectory()) throw unreachable(asked, account, barred);
    await rmdir(asked).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw unreachable(asked, account, barred);
    });
  }
  throw new TallymanError(
    'EMBEDDED_FOLDER_UNSTABLE',
    `${asked} keeps being made and removed by another process.`,
  );
}

const ownedByRoot = (folder: string): TallymanError =>
  new TallymanError(
    'EMBEDDED_NOT_YOURS',
    `${join(folder, 'data')} belongs to root, but PostgreSQL does not run as root and only runs on files of its own account. ` +
      `Give it back: chown -R postgres ${join(folder, 'data')} (or another account).`,
    { details: { folder } },
  );

const unreachable = (asked: string, account: Account, barred: string): TallymanError =>
  new TallymanError(
    'EMBEDDED_UNREACHABLE',
    `The database in ${asked} runs under the account ${account.name}, which may not enter ${barred}. ` +
      `Allow it (chmod o+x ${barred}), move the folder elsewhere, or set DATABASE_URL.`,
    { details: { dataDir: asked, barred } },
  );

async function makeFolder(asked: string, systemDir: string): Promise<void> {
  const parent = dirname(asked);
  const firstMade = await mkdir(parent, { recursive: true });
  const above = await stat(firstMade === undefined ? parent : dirname(firstMade));
  const account = await accountForNew(above);
  // Root works in a user's folder: what it makes on the way is that user's.
  const forUser = account.uid === above.uid;
  if (forUser && firstMade !== undefined) {
    for (let at = parent; ; at = dirname(at)) {
      await chown(at, above.uid, above.gid);
      if (at === firstMade) break;
    }
  }
  if ((await firstBarred(parent, account)) !== undefined) {
    await relocate(asked, account, systemDir);
    return;
  }
  try {
    await mkdir(asked, { mode: 0o711 });
    if (forUser) await chown(asked, above.uid, above.gid);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/** Writes a whole file beside `path`, on disk and with its final owner and mode; the caller puts it in place. */
export async function writeBeside(area: Area, path: string, content: string, mode: number): Promise<string> {
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  const file = await open(temporary, 'wx', mode);
  try {
    await file.writeFile(content);
    await file.chmod(mode);
    if (isRoot()) await file.chown(area.keeper.uid, area.keeper.gid);
    await file.sync();
  } finally {
    await file.close();
  }
  return temporary;
}

/** Replaces a file as one step: a reader, or a crash, finds the old content or the new. */
export async function writeWhole(area: Area, path: string, content: string, mode: number): Promise<void> {
  await rename(await writeBeside(area, path, content, mode), path);
}

/** Makes the names in a folder survive a power cut; Windows has no such call and needs none. */
export async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  const folder = await open(path, 'r');
  await folder.sync().finally(() => folder.close());
}

const PASSWORD = /^[A-Za-z0-9_-]{32,}$/;

/**
 * The superuser's password, made once. It is written before the cluster exists and never again, so however a
 * first start is interrupted the cluster that gets its name has the password in the file.
 */
export async function passwordOf(area: Area, clusterExists: boolean): Promise<string> {
  const path = join(area.folder, 'password');
  const kept = (await readFile(path, 'utf8').catch(missing<string>))?.trim();
  if (kept !== undefined && PASSWORD.test(kept)) return kept;
  if (clusterExists) {
    throw new TallymanError(
      'EMBEDDED_PASSWORD_MISSING',
      `${path} is missing or damaged, and without it nobody can log in to the database in ${area.data}. ` +
        `Put the file back from a backup, or remove ${area.folder} to start with an empty database.`,
      { details: { path } },
    );
  }
  const password = randomBytes(32).toString('base64url');
  await writeWhole(area, path, `${password}\n`, 0o600);
  return password;
}
