import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chown, copyFile, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { messageOf, TallymanError } from '../../errors.ts';
import { spawnAs } from './account.ts';
import { type Area, missing, syncFolder } from './area.ts';
import type { Binaries } from './binaries.ts';

export const SUPERUSER = 'tallyman';

const DRAFT = 'init-';

/**
 * What the programs get of our environment. Not all of it: PG* would change what they do, and ours may hold
 * secrets that the server's account, and any superuser of the database, must not read.
 */
const PASSED_ON = /^(PATH|LD_LIBRARY_PATH|NIX_LD.*|TMPDIR|TEMP|TMP|SystemRoot|SystemDrive|windir)$/i;

export const serverEnvironment = (): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => PASSED_ON.test(name))),
  // We read its messages, so they must not come in the user's language.
  LC_ALL: 'C',
});

export const clusterExists = async (area: Area): Promise<boolean> =>
  (await stat(join(area.data, 'PG_VERSION')).catch(missing)) !== undefined;

/**
 * Makes the cluster, in a folder of its own that gets the name `data` only when all of it is on disk. Killed at
 * any moment it leaves at most a folder `init-*`, which the next start removes. The caller owns the area.
 */
export async function ensureCluster(area: Area, binaries: Binaries): Promise<void> {
  for (const name of await readdir(area.folder)) {
    if (!name.startsWith(DRAFT)) continue;
    // An initdb whose parent was killed may still be writing there; what it re-makes goes next time.
    await rm(join(area.folder, name), { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
  }
  if (await clusterExists(area)) return;

  const draft = await mkdtemp(join(area.folder, DRAFT));
  try {
    const data = join(draft, 'data');
    const password = join(draft, 'password');
    await copyFile(join(area.folder, 'password'), password);
    await mkdir(data, { mode: 0o700 });
    if (area.account) {
      for (const path of [draft, password, data]) await chown(path, area.account.uid, area.account.gid);
    }
    await initdb(area, binaries, data, password);
    await rename(data, area.data);
    await syncFolder(area.folder);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

/**
 * Deletes the cluster. It loses its name first: a process that is killed meanwhile leaves a folder that the next start
 * removes, never half of a cluster under its final name. The caller owns the area, and no server runs in it.
 */
export async function removeCluster(area: Area): Promise<void> {
  const doomed = join(area.folder, `${DRAFT}${randomBytes(6).toString('hex')}`);
  await rename(area.data, doomed);
  await syncFolder(area.folder);
  await rm(doomed, { recursive: true, force: true, maxRetries: 3 });
}

async function initdb(area: Area, binaries: Binaries, data: string, password: string): Promise<void> {
  // No --no-sync: writing 40 MB through costs about 0.1 s once, and a power cut then cannot leave half a cluster
  // under its final name. Sort order and case rules are PostgreSQL's own (builtin C.UTF-8), so that they are the same on
  // every system and do not change, and silently break indexes, with an update of the C library.
  const args = [
    ...['-D', data, '-U', SUPERUSER, `--pwfile=${password}`, '--auth=scram-sha-256'],
    ...['--encoding=UTF8', '--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'],
    ...['--set', 'timezone=UTC', '--set', 'log_timezone=UTC', '--no-instructions'],
  ];
  const said = await new Promise<{ ok: boolean; output: string }>((resolve, reject) => {
    const child = spawn(binaries.initdb, args, {
      ...spawnAs(area.account),
      // A folder the account can be in: ours may be closed to it.
      cwd: dirname(binaries.initdb),
      env: serverEnvironment(),
      // Its own process group: Ctrl-C in the terminal is for our process, which then stops in order.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      windowsHide: true,
    });
    let output = '';
    child.stdout.on('data', (chunk) => (output += chunk));
    child.stderr.on('data', (chunk) => (output += chunk));
    child.on('error', (error) => reject(cannotRun(binaries.initdb, error)));
    child.on('close', (code) => resolve({ ok: code === 0, output }));
  });
  if (said.ok) return;
  const last = said.output.trim().split('\n').slice(-12).join('\n');
  const hint = last.includes('could not look up effective user ID')
    ? ' This user has no entry in /etc/passwd, which PostgreSQL needs to make a database: add one, or set DATABASE_URL.'
    : '';
  throw new TallymanError(
    'EMBEDDED_INIT_FAILED',
    `The embedded PostgreSQL could not make its database in ${area.folder}.${hint} initdb said:\n${last}`,
    { details: { dataDir: area.asked } },
  );
}

export function cannotRun(program: string, error: unknown): TallymanError {
  return new TallymanError(
    'EMBEDDED_CANNOT_RUN',
    `${program} cannot be run: ${messageOf(error)}. The programs need glibc (not Alpine's musl) and a disk that ` +
      'allows running them (no noexec). Otherwise set DATABASE_URL to a PostgreSQL you run yourself.',
    { cause: error },
  );
}
