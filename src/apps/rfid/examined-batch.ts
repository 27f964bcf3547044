import type { ExaminedRead, FailedRead } from './tag-read.ts';

/** Reads in canonical form, those that fail set apart, and where each of them was. */
export interface ExaminedBatch {
  readonly sound: readonly ExaminedRead[];
  readonly failures: readonly FailedRead[];
  readonly places: readonly { readonly sound: boolean; readonly place: number }[];
}

/** One batch of several, in their order. */
export function merged(batches: readonly ExaminedBatch[]): ExaminedBatch {
  const [only, ...others] = batches;
  if (only && others.length === 0) return only;
  const sound: ExaminedRead[] = [];
  const failures: FailedRead[] = [];
  const places: { sound: boolean; place: number }[] = [];
  for (const batch of batches) {
    const before = { sound: sound.length, failures: failures.length };
    for (const { sound: isSound, place } of batch.places)
      places.push({ sound: isSound, place: place + (isSound ? before.sound : before.failures) });
    for (const read of batch.sound) sound.push(read);
    for (const failure of batch.failures) failures.push(failure);
  }
  return { sound, failures, places };
}
