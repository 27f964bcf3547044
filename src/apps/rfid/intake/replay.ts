import type { Logger } from '../../../engine/logger.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import { CachedDevices, processRead, retryAsJobs, TagReadProcessor } from '../index.ts';
import { Replay, type ReplayObserver, TagReadSource } from '../replay/index.ts';

export interface OwnReplayOptions {
  readonly logger?: Logger;
  readonly observer?: ReplayObserver | undefined;
}

/** Replays our own `iot.tag_reads`. Reads that fail are retried as jobs by any worker that runs intake. */
export function replayOf(tallyman: Tallyman, options: OwnReplayOptions = {}): Replay {
  const { database, checkpoints } = tallyman;
  const processor: TagReadProcessor = new TagReadProcessor({
    database,
    devices: new CachedDevices({ database }),
    onFailed: (tx, failures) => retryAsJobs(tallyman, processRead(processor))(tx, failures),
  });
  return new Replay({
    source: new TagReadSource(database),
    processor,
    checkpoints,
    exclusively: (lockId, work, more) => tallyman.exclusively(lockId, work, more),
    ...options,
  });
}
