/** What replay does with a batch of rows before and after it is processed. */
import type { Queryable } from '../../../engine/database/database.ts';
import type { ExaminedBatch } from '../examined-batch.ts';
import { findProcessed } from '../store.ts';
import type { ReadResult, TagRead } from '../tag-read.ts';
import type { ReplayCounts } from './counts.ts';
import type { SourceRow } from './source.ts';

/** As it is handed to the processor. */
export const toRead = ({ id, ...row }: SourceRow): TagRead => ({
  ...row,
  zbTagReadId: id,
  processorType: 'Replay',
});

/**
 * The batch without processed reads, which are most of what replay sees. They need no lock on their baskets, because a
 * processed read stays processed. The others are checked again under the lock.
 */
export async function unprocessed(tx: Queryable, batch: ExaminedBatch): Promise<ExaminedBatch> {
  const processed = await findProcessed(tx, batch.sound, [...batch.sound.keys()]);
  if (processed.size === 0) return batch;
  const sound = batch.sound.filter((_, place) => !processed.has(place));
  return arranged(sound, batch.failures);
}

/** The batch without known failures. Answers list valid reads first; only their number matters here. */
export function without({ sound, failures }: ExaminedBatch, known: ReadonlySet<string>): ExaminedBatch {
  const unknown = failures.filter(({ read }) => !known.has(`${read.zbTagReadId} ${read.tenantId}`));
  return arranged(sound, unknown);
}

function arranged(sound: ExaminedBatch['sound'], failures: ExaminedBatch['failures']): ExaminedBatch {
  const place = (isSound: boolean) => (_: unknown, place: number) => ({ sound: isSound, place });
  return { sound, failures, places: [...sound.map(place(true)), ...failures.map(place(false))] };
}

/** Counts the answers of `read` rows. */
export function countsOf(read: number, results: readonly ReadResult[]): ReplayCounts {
  const duplicates = results.filter((result) => result.skipReason === 'duplicate').length;
  const failed = results.filter((result) => !result.success).length;
  return { read, processed: results.length - duplicates - failed, duplicates, failed };
}
