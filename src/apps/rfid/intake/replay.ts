import type { Logger } from '../../../engine/logger.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import { given } from '../../../given.ts';
import {
  CachedDevices,
  type MovementOptions,
  processRead,
  retryAsJobs,
  TagReadProcessor,
  type TagReadProcessorOptions,
} from '../index.ts';
import { Replay, type ReplayObserver, TagReadSource } from '../replay/index.ts';

export interface OwnReplayOptions {
  readonly logger?: Logger;
  readonly observer?: ReplayObserver | undefined;
  /** Where devices are looked up. Default: a cache of its own, which hears of no change. */
  readonly devices?: CachedDevices;
  /** How reads are judged. */
  readonly judgement?: Pick<TagReadProcessorOptions, 'tags' | 'clock'> | undefined;
  /** Attempts of a read that failed. Default 5. */
  readonly maxAttempts?: number | undefined;
  readonly movements?: MovementOptions;
}

/** Replays our own `iot.tag_reads`. Reads that fail are retried as jobs by any worker that runs intake. */
export function replayOf(tallyman: Tallyman, { movements, ...options }: OwnReplayOptions = {}): Replay {
  const { database, checkpoints } = tallyman;
  const { devices = new CachedDevices({ database }), judgement, maxAttempts, ...more } = options;
  const processor: TagReadProcessor = new TagReadProcessor({
    database,
    devices,
    ...judgement,
    onFailed: (tx, failures) => retryAsJobs(tallyman, processRead(processor, maxAttempts))(tx, failures),
    ...given({ movements }),
  });
  return new Replay({
    source: new TagReadSource(database),
    processor,
    checkpoints,
    exclusively: (lockId, work, more) => tallyman.exclusively(lockId, work, more),
    ...more,
  });
}
