/** Removes what no fact names: uploads that were given up, names without facts, bytes without names. */
import type { Database } from '../../../engine/database/database.ts';
import { isGap } from '../domain/record.ts';
import type { FactStore, Found } from '../store/store.ts';
import type { Blobs } from './blobs.ts';
import * as names from './names.ts';

export interface CollectOptions {
  readonly database: Database;
  readonly blobs: Blobs;
  readonly store: FactStore;
  /** An upload that got no bytes for this long was given up. */
  readonly uploadGraceMs: number;
  /** Objects that are younger stay, whether a fact names them or not: its producer may be about to append it. */
  readonly graceMs: number;
  /**
   * A hold that is older, and whose fact is not there, was written for an append that failed. Longer than an append can
   * take: one that is still under way keeps its object.
   */
  readonly holdGraceMs: number;
}

export interface Collected {
  readonly uploads: number;
  readonly holds: number;
  readonly objects: number;
  readonly blobs: number;
}

const page = 500;

export async function collectOrphans(options: CollectOptions): Promise<Collected> {
  const { database, blobs, uploadGraceMs, graceMs, holdGraceMs } = options;
  // The time of the database, as that of the rows; files have the time of this machine, and the grace covers the difference.
  const { rows } = await database.query<{ now: Date }>('select clock_timestamp() as now');
  const now = rows[0]?.now.getTime() ?? 0;
  return {
    uploads: await blobs.sweep(new Date(Date.now() - uploadGraceMs)),
    holds: await releaseHolds(options, new Date(now - holdGraceMs)),
    objects: await removeNames(database, new Date(now - graceMs)),
    blobs: await removeBlobs(options),
  };
}

/** A hold ends when its fact was trimmed, or never came; not while the fact is in quarantine and may be redriven. */
async function releaseHolds({ database, store }: CollectOptions, before: Date): Promise<number> {
  let released = 0;
  let last: names.OldHold | undefined;
  do {
    const holds = await names.holdsAfter(database, last, { before, limit: page });
    for (const hold of holds) {
      const fact = await store.find(hold.tenantId, hold.buffer, hold.from, hold.messageId);
      if (fact && isNamedBy(fact, hold)) continue;
      if (await store.isInQuarantine(hold.tenantId, hold.buffer, hold.from, hold.messageId)) continue;
      await names.release(database, hold);
      released += 1;
    }
    last = holds.length === page ? holds.at(-1) : undefined;
  } while (last);
  return released;
}

/** A message id that was refused, with another object or for another zone, may be that of a fact that was taken. */
function isNamedBy({ stream, entry }: Found, { bucket, key, to }: names.OldHold): boolean {
  if (!entry || isGap(entry.record)) return false;
  const { reference } = entry.record;
  return stream.to === to && reference?.bucket === bucket && reference.key === key;
}

async function removeNames(database: Database, before: Date): Promise<number> {
  let removed = 0;
  for (;;) {
    try {
      const count = await names.removeOrphans(database, { before, limit: page });
      removed += count;
      if (count < page) return removed;
    } catch (error) {
      // A hold was written between the look and the deletion, and the foreign key has refused: the next run sees it.
      if ((error as { code?: string }).code !== foreignKeyViolation) throw error;
      return removed;
    }
  }
}

const foreignKeyViolation = '23503';

/**
 * The bytes are put aside first; then the look for names, on the connection that holds the lock, decides. If the look
 * succeeds the lock was held: everyone who found the bytes before has committed a name, which the look sees; everyone else
 * stores them anew.
 */
async function removeBlobs({ database, blobs, graceMs }: CollectOptions): Promise<number> {
  let removed = 0;
  for await (const digest of blobs.olderThan(new Date(Date.now() - graceMs))) {
    if (await names.areNamed(database, digest)) continue;
    const gone = await database.transaction(async (tx) => {
      await names.lockBytes(tx, digest, 'exclusive');
      return blobs.remove(digest, () => names.areNamed(tx, digest));
    });
    if (gone) removed += 1;
  }
  return removed;
}
