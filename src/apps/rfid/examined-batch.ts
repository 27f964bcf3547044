import type { ExaminedRead, FailedRead } from './tag-read.ts';

/** Reads in canonical form; failed reads are kept apart. `places` maps each back to its index in the batch. */
export interface ExaminedBatch {
  readonly sound: readonly ExaminedRead[];
  readonly failures: readonly FailedRead[];
  readonly places: readonly { readonly sound: boolean; readonly place: number }[];
}

/** Joins several batches into one, in order. */
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

/** The part of a batch that belongs to one lane, with the original index of each read. */
export interface BatchPart {
  readonly lane: number;
  readonly batch: ExaminedBatch;
  readonly from: readonly number[];
}

/** All reads of a basket go to the same lane. Failed reads belong to no basket and go to the first lane. */
export function splitByBasket({ sound, failures, places }: ExaminedBatch, lanes: number): BatchPart[] {
  const parts = Array.from({ length: lanes }, (_, lane) => ({
    lane,
    batch: {
      sound: [] as ExaminedRead[],
      failures: [] as FailedRead[],
      places: [] as { sound: boolean; place: number }[],
    },
    from: [] as number[],
  }));
  for (const [from, { sound: isSound, place }] of places.entries()) {
    const read = isSound ? (sound[place] as ExaminedRead) : undefined;
    const part = parts[read ? laneOf(read.epcHex, lanes) : 0];
    if (!part) continue;
    const count = read
      ? part.batch.sound.push(read)
      : part.batch.failures.push(failures[place] as FailedRead);
    part.batch.places.push({ sound: isSound, place: count - 1 });
    part.from.push(from);
  }
  return parts.filter(({ from }) => from.length > 0);
}

/** Hashes the end of the tag, where serial numbers differ. */
function laneOf(epcHex: string, lanes: number): number {
  let sum = 0;
  for (let i = Math.max(0, epcHex.length - 9); i < epcHex.length; i += 1)
    sum = (sum * 31 + epcHex.charCodeAt(i)) % 65_521;
  return sum % lanes;
}
