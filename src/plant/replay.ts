import { CachedDevices, processRead, retryAsJobs, TagReadProcessor } from '../apps/rfid/index.ts';
import { Replay, TagReadSource } from '../apps/rfid/replay/index.ts';
import type { Logger } from '../engine/logger.ts';
import type { Tallyman } from '../engine/tallyman.ts';

/** Replay of our own `iot.tag_reads`. Reads that fail are tried again as jobs, wherever a worker with intake runs. */
export function replayOf(tallyman: Tallyman, options: { readonly logger?: Logger } = {}): Replay {
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
