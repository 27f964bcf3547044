/** Reads a log again from its first entry, and finds what was changed since it was written. */
import { nextChain } from '../../engine/log/entry.ts';
import { contentDigest } from './domain/fact.ts';
import { isGap } from './domain/record.ts';
import type { FactStore, StoredEntry, StreamId } from './store/store.ts';

export interface Damage {
  readonly offset: number;
  readonly messageId: string;
  readonly what: string;
}

export interface Audit {
  /** The first and last offset that were read; 0 if there is nothing. */
  readonly first: number;
  readonly last: number;
  readonly damages: readonly Damage[];
  /** Chain hashes at the offsets that were asked for, as they follow from the entries. */
  readonly chains: ReadonlyMap<number, string>;
}

const page = { limit: 500, maxBytes: 4 * 1024 * 1024 } as const;

/**
 * The chain hash of the first entry that is kept is believed; everything behind it is computed. After a change in the middle
 * the chain goes on from what is stored, so that each entry that was changed is named, and only those.
 */
export async function auditLog(
  store: FactStore,
  stream: StreamId,
  chainsAt: ReadonlySet<number> = new Set(),
): Promise<Audit> {
  const damages: Damage[] = [];
  const chains = new Map<number, string>();
  let first = 0;
  let before: StoredEntry | undefined;
  for (;;) {
    const entries = await store.read(stream, { after: before?.offset ?? 0, ...page });
    for (const entry of entries) {
      first ||= entry.offset;
      const what = damageOf(entry, before);
      if (what !== undefined) damages.push({ offset: entry.offset, messageId: entry.key, what });
      if (chainsAt.has(entry.offset)) chains.set(entry.offset, entry.chain);
      before = entry;
    }
    if (entries.length === 0) return { first, last: before?.offset ?? 0, damages, chains };
  }
}

/** What is wrong with an entry, given the one before. */
export function damageOf(entry: StoredEntry, before: StoredEntry | undefined): string | undefined {
  const { offset, key, digest, chain, record } = entry;
  if (before && offset !== before.offset + 1)
    return `offsets ${before.offset + 1} to ${offset - 1} before it are missing`;
  if (before && nextChain(before.chain, entry) !== chain)
    return 'its chain hash does not follow from it and the entry before';
  if (!isGap(record) && (record.messageId !== key || contentDigest(record) !== digest))
    return 'its content does not have its digest or message id';
  return undefined;
}
