/**
 * Which process runs the server of a folder. PostgreSQL's own lock says whether a *server* runs; it outlives a
 * killed parent, and tells nothing about who would be surprised if we stopped it.
 *
 * `owner/` holds numbered records; the highest number counts, and says "held by this process" or "released".
 *
 *     000007.json  --owner ended, or released-->  the first process links 000008.json
 *
 * What must stay true: the highest record is never removed (a slow starter that still believes in 7 must find 8
 * taken, or see 9 above it), and a record gets its name with its whole content (hence link, not create-and-write).
 * The usual way, to remove a stale lock file and create it again, lets two processes each remove the other's file.
 */
import { chown, link, mkdir, readdir, readFile, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TallymanError } from '../../errors.ts';
import { isRoot } from './account.ts';
import { type Area, missing, writeBeside, writeWhole } from './area.ts';
import { fateOf, ownIdentity, type ProcessIdentity } from './process-identity.ts';

export interface Ownership {
  release(): Promise<void>;
}

interface OwnerRecord extends ProcessIdentity {
  readonly since: string;
  readonly released: boolean;
}

/**
 * The owner touches its record while it lives. Only read when its process cannot be looked up: another container
 * on the same volume, another machine, or Windows.
 */
const HEARTBEAT_MS = 1_000;
const SILENCE_MS = 5_000;

const ABANDONED_DRAFT_MS = 600_000;

const RECORD = /^(\d+)\.json$/;

async function generations(folder: string): Promise<number[]> {
  const names = await readdir(folder);
  return names.flatMap((name) => RECORD.exec(name)?.[1] ?? []).map(Number);
}

const recordPath = (folder: string, generation: number): string =>
  join(folder, `${String(generation).padStart(6, '0')}.json`);

async function readRecord(path: string): Promise<OwnerRecord | 'unreadable' | undefined> {
  const text = await readFile(path, 'utf8').catch(missing<string>);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text) as OwnerRecord;
  } catch {
    return 'unreadable';
  }
}

/** Becomes the owner of the area, or throws EMBEDDED_IN_USE. */
export async function claimOwnership(area: Area): Promise<Ownership> {
  const folder = join(area.folder, 'owner');
  await mkdir(folder, { recursive: true, mode: 0o755 });
  if (isRoot()) await chown(folder, area.keeper.uid, area.keeper.gid);
  const self: OwnerRecord = { ...(await ownIdentity()), since: new Date().toISOString(), released: false };
  const draft = await writeBeside(area, join(folder, 'claim'), JSON.stringify(self), 0o644);
  let own: number;
  try {
    own = await takeNext(area, folder, draft, self);
  } finally {
    await rm(draft, { force: true });
  }
  await removeOlder(folder, own);
  const path = recordPath(folder, own);

  const beat = setInterval(() => {
    const now = new Date();
    // A folder removed under a running server is found out by the server itself.
    utimes(path, now, now).catch(() => {});
  }, HEARTBEAT_MS).unref();
  return {
    async release() {
      clearInterval(beat);
      await writeWhole(area, path, JSON.stringify({ ...self, released: true }), 0o644).catch(missing);
    },
  };
}

async function takeNext(area: Area, folder: string, draft: string, self: OwnerRecord): Promise<number> {
  for (;;) {
    const current = Math.max(0, ...(await generations(folder)));
    if (current > 0) await throwIfHeld(area, recordPath(folder, current), self);
    const next = current + 1;
    const path = recordPath(folder, next);
    try {
      await link(draft, path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') continue;
      throw error;
    }
    if (Math.max(...(await generations(folder))) === next) return next;
    // The number was free only because its holder started, ended and was cleaned up since we looked.
    await rm(path, { force: true });
  }
}

async function throwIfHeld(area: Area, path: string, self: OwnerRecord): Promise<void> {
  const record = await readRecord(path);
  if (record === undefined) return;
  if (record === 'unreadable') {
    if (await beats(path)) throw inUse(area, undefined, self);
    return;
  }
  if (record.released) return;
  const fate = await fateOf(record, self);
  if (fate === 'alive' || (fate === 'unknown' && (await beats(path)))) throw inUse(area, record, self);
}

async function beats(path: string): Promise<boolean> {
  const lastBeat = async (): Promise<number | undefined> =>
    (await stat(path).catch(missing<{ mtimeMs: number }>))?.mtimeMs;
  const before = await lastBeat();
  const deadline = Date.now() + SILENCE_MS;
  while (Date.now() < deadline) {
    await sleep(HEARTBEAT_MS / 4);
    if ((await lastBeat()) !== before) return true;
  }
  return false;
}

function inUse(area: Area, record: OwnerRecord | undefined, self: OwnerRecord): TallymanError {
  const elsewhere = record?.host !== self.host || record.pidNamespace !== self.pidNamespace;
  const who = !record
    ? 'another process'
    : elsewhere
      ? `process ${record.pid} on ${record.host}`
      : `${record.pid === self.pid ? 'this very process, ' : 'process '}${record.pid}`;
  return new TallymanError(
    'EMBEDDED_IN_USE',
    `The embedded PostgreSQL in ${area.asked} is already run by ${who}${record ? `, since ${record.since}` : ''}. ` +
      'Stop that process first, use another folder, or set DATABASE_URL so that several processes share one PostgreSQL.',
    {
      details: {
        dataDir: area.asked,
        ...(record && { pid: record.pid, host: record.host, since: record.since }),
      },
    },
  );
}

async function removeOlder(folder: string, own: number): Promise<void> {
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    const generation = RECORD.exec(name)?.[1];
    if (generation !== undefined) {
      if (Number(generation) < own) await rm(path, { force: true });
      continue;
    }
    // A younger draft may be of a starter that is about to link it.
    const age = Date.now() - ((await stat(path).catch(missing<{ mtimeMs: number }>))?.mtimeMs ?? Date.now());
    if (age > ABANDONED_DRAFT_MS) await rm(path, { force: true });
  }
}
