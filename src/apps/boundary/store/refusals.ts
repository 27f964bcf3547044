/** Which facts of a delivery are not taken, because their content is here already, or other content under their id. */
import type { Queryable } from '../../../engine/database/database.ts';
import type { CheckedEntry, DeliveredEntry } from '../domain/delivery.ts';
import { contentDigest } from '../domain/fact.ts';
import { type FactRecord, formerIdsIn, restoredPrefix, standsForIn } from '../domain/record.ts';
import { recordProblem } from '../domain/record-check.ts';
import type { FactLog } from './log.ts';
import { type FormerId, formerDigests } from './postgres/former-ids.ts';
import { redrivenText } from './postgres/quarantine.ts';
import type { StreamId } from './store.ts';

export interface Refusal {
  readonly reason: string;
  readonly message: string;
  /** It is here already, with the same content: nothing is missing. */
  readonly isDelivered?: boolean;
}

/**
 * A source that was restored from a backup does not know which of its facts had crossed: it appends them again under other ids.
 * Former ids say here whether a fact is in already. So they do for a fact that comes under one of them after it crossed under another.
 */
export async function restoredRefusals(
  stream: StreamId,
  entries: readonly DeliveredEntry[],
  known: Known,
): Promise<Map<number, Refusal>> {
  const refusals = new Map<number, Refusal>();
  const restored = entries.map((entry) => ({
    entry,
    record: entry.key.startsWith(restoredPrefix) ? parsed(entry.text) : undefined,
  }));
  const ids = restored.flatMap(({ entry, record }) => [entry.key, ...(record ? formerIdsIn(record) : [])]);
  const crossed = await formerDigests(known.tables, stream, ids);
  for (const { entry, record } of restored) {
    const refusal = record
      ? await restoredRefusal(stream, entry, record, { ...known, crossed })
      : refusalFor(entry.key, entry.digest, crossed.get(entry.key));
    if (refusal) refusals.set(entry.offset, refusal);
  }
  return refusals;
}

interface Known {
  readonly log: FactLog;
  /** Of the tables around the log. */
  readonly tables: Queryable;
}

/** What is to be known of a fact that was taken. */
export function formerIdsOf(record: FactRecord): FormerId[] {
  const ids = formerIdsIn(record);
  if (ids.length === 0) return [];
  const digest = contentDigest(record);
  return ids.map((id) => ({ id, digest }));
}

/** The same content under any of its ids counts more than other content under another one. */
async function restoredRefusal(
  stream: StreamId,
  { digest }: DeliveredEntry,
  record: FactRecord,
  { log, tables, crossed }: Known & { readonly crossed: ReadonlyMap<string, string> },
): Promise<Refusal | undefined> {
  let conflict: Refusal | undefined;
  for (const id of formerIdsIn(record))
    for (const before of [crossed.get(id), await log.digestOf(stream, id)]) {
      const refusal = refusalFor(id, digest, before);
      if (refusal?.isDelivered) return refusal;
      conflict ??= refusal;
    }
  const standsFor = standsForIn(record);
  if (!standsFor || standsFor.isDropped) return conflict;
  // The fact was refused here at first, and came by a redrive that the source has lost.
  const redriven = parsed((await redrivenText(tables, stream, standsFor)) ?? '');
  return (redriven && refusalFor(standsFor.messageId, digest, contentDigest(redriven))) ?? conflict;
}

/** Undefined: no node could have written it. */
function parsed(text: string): FactRecord | undefined {
  try {
    const record = JSON.parse(text) as FactRecord | null;
    return record && recordProblem(record) === undefined ? record : undefined;
  } catch {
    return undefined;
  }
}

/** Undefined: there was nothing before under this id. */
const refusalFor = (id: string, digest: string, before: string | undefined): Refusal | undefined =>
  before === undefined ? undefined : deliveredBefore(id, digest.startsWith(before));

// Of a trimmed fact the log may know half of the digest.
const deliveredBefore = (id: string, isSame: boolean): Refusal =>
  isSame
    ? {
        reason: 'already_delivered',
        message: `message id "${id}" was delivered before with the same content`,
        isDelivered: true,
      }
    : {
        reason: 'conflicting_duplicate',
        message: `message id "${id}" was delivered before with other content`,
      };

/** Looks up each id. */
export async function refusalsOf(
  stream: StreamId,
  entries: readonly CheckedEntry[],
  known: ReadonlyMap<number, Refusal>,
  log: FactLog,
): Promise<Map<number, Refusal>> {
  const refusals = new Map<number, Refusal>();
  const inDelivery = new Map<string, string>();
  for (const { offset, key, digest } of entries) {
    if (known.has(offset)) continue;
    const before = inDelivery.get(key) ?? (await log.digestOf(stream, key));
    if (before === undefined) inDelivery.set(key, digest);
    else refusals.set(offset, deliveredBefore(key, digest.startsWith(before)));
  }
  return refusals;
}
