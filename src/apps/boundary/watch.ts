import { messageOf } from '../../engine/errors.ts';
import type { Logger } from '../../engine/logger.ts';
import { pause } from '../../engine/resilience/deadline.ts';
import { streamName } from './domain/delivery.ts';
import { isStalled, type Standing, standingAfter } from './domain/stall.ts';
import { noteStalled } from './handoff/handoffs.ts';
import type { BoundaryObserver } from './metrics.ts';
import type { NodeParts } from './node.ts';
import { describePin } from './retention.ts';
import { nameOf, type StreamStatus, streamStatuses } from './status.ts';

export interface StreamWatchOptions {
  readonly node: NodeParts;
  readonly observer: BoundaryObserver;
  readonly logger: Logger;
  /** Default 5,000, and less where streams are stalled sooner. */
  readonly everyMs?: number;
  /** Milliseconds of a clock that only grows. */
  readonly clock?: () => number;
}

/** `unknown`: it has not been watched for long enough; what was known before counts. */
type Progress = 'stalled' | 'moving' | 'unknown';

/** Looks from time to time how streams get on: for metrics and health, and to notice a frontier that does not move. */
export class StreamWatch {
  readonly #options: StreamWatchOptions;
  readonly #clock: () => number;
  readonly #stopping = new AbortController();
  readonly #standing = new Map<string, Standing>();
  #running: Promise<void> | undefined;
  #troubles: readonly string[] = [];

  constructor(options: StreamWatchOptions) {
    this.#options = options;
    this.#clock = options.clock ?? (() => performance.now());
  }

  /** What somebody should look at. That another zone is away is no trouble: facts gather until it is back. */
  get troubles(): readonly string[] {
    return this.#troubles;
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async look(): Promise<void> {
    const { node, observer } = this.#options;
    const { rows } = await node.database.query<{ now: Date }>('select clock_timestamp() as now');
    const streams = await streamStatuses(node, rows[0]?.now ?? new Date());
    const seen = streams.map((stream) => ({ stream, progress: this.#see(stream) }));
    for (const { stream, progress } of seen) await this.#tell(stream, progress);
    const stalled = new Set(
      seen
        .filter(({ stream, progress }) =>
          progress === 'unknown' ? stream.handOff?.stalledSince : progress === 'stalled',
        )
        .map(({ stream }) => stream),
    );
    observer.saw(streams, stalled);
    this.#troubles = streams.flatMap((stream) => [
      ...(stalled.has(stream) ? [stallOf(stream)] : []),
      ...(stream.state?.fullSince ? [`${streamName(stream)} is full and refuses facts`] : []),
    ]);
  }

  #see(stream: StreamStatus): Progress {
    const { stalledAfterMs } = this.#options.node.settings;
    const now = this.#clock();
    const isRefused = stream.handOff?.mode === 'refused';
    const seen = {
      frontier: stream.frontier,
      // What waits in another zone is not known here; that it does not get in is.
      waiting: stream.buffer === 'store' ? stream.backlog : isRefused ? 1 : 0,
      isConnected: stream.isConnected,
    };
    const name = nameOf(stream);
    const before = this.#standing.get(name);
    const standing = standingAfter(before, seen, now);
    if (standing) this.#standing.set(name, standing);
    else this.#standing.delete(name);
    if (!standing || (before && before !== standing)) return 'moving';
    return isStalled(standing, now, stalledAfterMs) ? 'stalled' : 'unknown';
  }

  /** One line and one event for each change, whichever process notices it. */
  async #tell(stream: StreamStatus, progress: Progress): Promise<void> {
    const { node, logger } = this.#options;
    const isNowStalled = progress === 'stalled';
    const isKnown = stream.handOff?.stalledSince !== undefined;
    if (progress === 'unknown' || isKnown === isNowStalled) return;
    const { tenantId, buffer, from, to } = stream;
    if (!(await noteStalled(node.database, { tenantId, buffer, from, to }, isNowStalled))) return;
    const told = { from, to, frontier: stream.frontier, backlog: stream.backlog };
    if (isNowStalled) logger.warn(told, stallOf(stream));
    else logger.info(told, `${streamName(stream)} is no longer stalled`);
  }

  async #run(stopping: AbortSignal): Promise<void> {
    const { node, logger, everyMs = Math.min(5000, node.settings.stalledAfterMs / 2) } = this.#options;
    while (!stopping.aborted) {
      await this.look().catch((error) =>
        logger.debug({ error: messageOf(error) }, 'could not look how streams of the boundary get on'),
      );
      await pause(everyMs, stopping);
    }
  }
}

const stallOf = (stream: StreamStatus): string =>
  `${streamName(stream)} is stalled: the other zone answers, but the frontier stays at ${stream.frontier}. ` +
  (stream.handOff?.trouble ?? describePin(stream.pin));
