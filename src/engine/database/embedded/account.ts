import type { Stats } from 'node:fs';
import { readFile, realpath, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { TallymanError } from '../../errors.ts';

/**
 * The account the server runs under when we are root: PostgreSQL refuses root, because a user who becomes
 * superuser of a database could then run anything on the machine.
 */
export interface Account {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
}

export const isRoot = (): boolean => process.geteuid?.() === 0;

/**
 * In order of how little else they own: one made for us, PostgreSQL's own, then `nobody`, which every system
 * has but which other services may share.
 */
const PREFERRED = ['tallyman', 'postgres', '_postgres', 'nobody'] as const;

async function listedAccounts(): Promise<readonly Account[]> {
  const text = await readFile('/etc/passwd', 'utf8').catch(() => '');
  return text.split('\n').flatMap((line) => {
    const [name, , uid, gid] = line.split(':');
    if (!name || !uid || !gid || name.startsWith('#')) return [];
    // macOS lists nobody as -2; stat() and the kernel call the same account 4294967294.
    return [{ name, uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 }];
  });
}

/** The account that owns existing files. It need not be listed: only initdb asks for a name. */
export async function ownerOf(stats: Stats): Promise<Account | undefined> {
  if (stats.uid === 0) return undefined;
  const listed = (await listedAccounts()).find(({ uid }) => uid === stats.uid);
  return { uid: stats.uid, gid: stats.gid, name: listed?.name ?? `uid ${stats.uid}` };
}

/**
 * The account for a new folder. Under a folder that belongs to an ordinary user (`sudo npm start` in a home) it
 * is that user, so that the next start without sudo still can read its data.
 */
export async function accountForNew(parent: Stats): Promise<Account> {
  const listed = await listedAccounts();
  const ofParent = listed.find(({ uid }) => uid === parent.uid && uid !== 0);
  if (ofParent) return ofParent;
  for (const name of PREFERRED) {
    const account = listed.find((candidate) => candidate.name === name && candidate.uid !== 0);
    if (account) return account;
  }
  throw new TallymanError(
    'EMBEDDED_NO_ACCOUNT',
    `PostgreSQL does not run as root, and /etc/passwd lists none of ${PREFERRED.join(', ')} to run it under. ` +
      'Start as an ordinary user, add a user `tallyman`, or set DATABASE_URL to a PostgreSQL you run yourself.',
  );
}

/** The spawn options that make a child run under `account`; without one it runs as we do. */
export const spawnAs = (account: Account | undefined): { uid?: number; gid?: number } =>
  // spawn takes signed 32-bit numbers.
  account ? { uid: account.uid | 0, gid: account.gid | 0 } : {};

const EXECUTE = 0o1;
const READ = 0o4;

function allows(stats: Stats, account: Account, bits: number): boolean {
  // As in the kernel, the first class that fits decides. The child has no supplementary groups.
  const shift = stats.uid === account.uid ? 6 : stats.gid === account.gid ? 3 : 0;
  return ((stats.mode >> shift) & bits) === bits;
}

/**
 * The topmost folder on the way to `path` (itself included) that the account may not enter, or undefined.
 * Mode bits only: an ACL that grants more makes us copy where we need not, which costs space, not correctness.
 */
export async function firstBarred(path: string, account: Account): Promise<string | undefined> {
  const way: string[] = [];
  for (let at = await realpath(path); ; at = dirname(at)) {
    way.unshift(at);
    if (dirname(at) === at) break;
  }
  for (const step of way) {
    if (!allows(await stat(step), account, EXECUTE)) return step;
  }
  return undefined;
}

/** Whether the account can open this file (and, when it is a program, run it). */
export async function canRead(path: string, account: Account): Promise<boolean> {
  if ((await firstBarred(dirname(path), account)) !== undefined) return false;
  return allows(await stat(path), account, READ);
}
