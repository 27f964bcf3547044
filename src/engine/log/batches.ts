import type { Prepared } from './entry.ts';

/** One commit carries no more JSON than this (more only where a single payload is larger). */
const mostTextInABatch = 4 * 1024 * 1024;

export function* batchesOf<T extends Prepared>(entries: readonly T[]): Generator<T[]> {
  let batch: T[] = [];
  let size = 0;
  for (const entry of entries) {
    if (batch.length > 0 && size + entry.payload.length > mostTextInABatch) {
      yield batch;
      batch = [];
      size = 0;
    }
    batch.push(entry);
    size += entry.payload.length;
  }
  yield batch;
}
