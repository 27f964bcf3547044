export interface ReplayCounts {
  readonly read: number;
  /** Not processed before. */
  readonly processed: number;
  readonly duplicates: number;
  readonly failed: number;
}

export interface ReplayProgress extends ReplayCounts {
  /** Rows to read when it began; late rows come on top. */
  readonly total: number;
  /** The id of the last row that is done. */
  readonly position: string;
}

export const none: ReplayCounts = { read: 0, processed: 0, duplicates: 0, failed: 0 };

export const sum = (a: ReplayCounts, b: ReplayCounts): ReplayCounts => ({
  read: a.read + b.read,
  processed: a.processed + b.processed,
  duplicates: a.duplicates + b.duplicates,
  failed: a.failed + b.failed,
});

/** Adds the counts, reports them to the listener, and returns the sum. */
export function teller(total: number, onProgress: ((progress: ReplayProgress) => void) | undefined) {
  let counts = none;
  return (more: ReplayCounts, position: string): ReplayCounts => {
    counts = sum(counts, more);
    if (more.read > 0) onProgress?.({ ...counts, total: Math.max(total, counts.read), position });
    return counts;
  };
}
