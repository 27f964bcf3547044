import { hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Checkpoints } from '../../../engine/checkpoints/checkpoints.ts';
import type { Queryable } from '../../../engine/database/database.ts';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import { parseInstant } from '../../../engine/instant.ts';
import type { Section } from '../../../engine/locks/exclusive.ts';
import { type Logger, silentLogger } from '../../../engine/logger.ts';
import { requireWhole } from '../../../engine/validate.ts';
import { deviceLockId, lockIds } from '../lock-ids.ts';
import { isCollision, type TagReadProcessor } from '../process.ts';
import { countsOf, toRead, unprocessed, without } from './batch.ts';
import { none, type ReplayCounts, type ReplayProgress, sum, teller } from './counts.ts';
import { type Exclusively, endOf, Follower } from './follower.ts';
import { keepAtIt } from './keep-at-it.ts';
import { earlier, isAfter, isIdle, latePass } from './position.ts';
import type { Selection, SourceDevice, SourceRow, TagReadSource } from './source.ts';
import { failedBefore } from './store.ts';

export interface ReplayOptions {
  readonly source: TagReadSource;
  readonly processor: TagReadProcessor;
  readonly checkpoints: Checkpoints;
  readonly exclusively: Exclusively;
  /** Names the checkpoints. Default: the table's name. */
  readonly name?: string;
  /** Reads in one transaction. Default 500. */
  readonly batch?: number;
  readonly logger?: Logger;
  readonly observer?: ReplayObserver | undefined;
}

/** Reports what replay does, for metrics. */
export interface ReplayObserver {
  /** A batch is committed. */
  replayed(counts: ReplayCounts): void;
  /** `busy`: another instance is running a replay. */
  replayEnded(outcome: 'done' | 'busy' | 'failed'): void;
}

export interface ReplayRequest {
  /** An id, or a time of events (ISO 8601), included. Default: from the checkpoint. */
  readonly from?: string;
  /** An id, included, or a time of events, not included. Default: to the newest row. */
  readonly to?: string;
  /** A serial. Default: all devices. */
  readonly device?: string;
  readonly tenantId?: string;
  readonly onProgress?: (progress: ReplayProgress) => void;
  readonly signal?: AbortSignal;
  /** How long to wait for another instance's replay to end. Default 30,000. */
  readonly waitMs?: number;
}

export interface FollowOptions {
  readonly signal: AbortSignal;
  /** Default 5,000. */
  readonly intervalMs?: number;
  /**
   * `in-order`: one instance at a time reads all devices in the order of ids, so that few movements are corrected.
   * `by-device`: every instance takes the devices that are free. A basket that passed two of them may be judged by the
   * later read first; the earlier one then corrects its movements. The result is the same. Default `in-order`.
   */
  readonly mode?: 'in-order' | 'by-device';
}

const retryPauseMs = 200;
/** How often a batch is retried after it collided with another at the same keys. */
const patience = 5;
/** Of a checkpoint, in bytes. */
const longestName = 256;

/**
 * Processes the rows of the source that were not processed before, each row once.
 *
 * A batch is one transaction with three parts: the effects, their keys, and the checkpoint. So a crash at any point leaves
 * a batch complete or not begun. It runs on the connection that holds the lock: an instance that lost the lock cannot commit.
 */
export class Replay {
  readonly #options: ReplayOptions;
  readonly #batch: number;
  readonly #name: string;
  readonly #logger: Logger;
  readonly #follower: Follower;

  constructor(options: ReplayOptions) {
    this.#options = options;
    this.#batch = options.batch ?? 500;
    requireWhole(this.#batch, 'batch', 1, 10_000);
    this.#name = `rfid.replay/${options.name ?? options.source.name}`;
    this.#logger = options.logger ?? silentLogger;
    this.#follower = new Follower({ ...options, batch: this.#batch });
  }

  /** All devices in the order of ids, from the checkpoint to the newest row. `undefined`: another instance holds the lock. */
  catchUp(request: Pick<ReplayRequest, 'onProgress' | 'signal'> = {}): Promise<ReplayCounts | undefined> {
    return this.#observed(() =>
      this.#follower.advance(
        { checkpoint: this.#name, lockId: lockIds.replay },
        (...batch) => this.#commit(...batch),
        request,
      ),
    );
  }

  /** Every row up to and including this id was replayed, and no more can appear there. `undefined`: replay never ran. */
  async floor(): Promise<string | undefined> {
    const { position, version } = await this.#follower.load(this.#name);
    return version === 0 ? undefined : position.floor;
  }

  /** One device, from its own checkpoint to the newest row. `undefined`: another instance holds the lock. */
  async catchUpDevice(
    device: SourceDevice,
    request: Pick<ReplayRequest, 'onProgress' | 'signal'> = {},
  ): Promise<ReplayCounts | undefined> {
    const scope = {
      checkpoint: this.#checkpointOf(device),
      lockId: deviceLockId(device.deviceId),
      device,
      // A position that is complete for all devices is complete for each.
      start: (await this.#follower.load(this.#name)).position.floor,
    };
    return this.#follower.advance(scope, (...batch) => this.#commit(...batch), request);
  }

  /**
   * Replays each device that no other instance holds, so that instances share the work. When all devices have reached the
   * horizon, moves the common checkpoint. Returns what this instance did.
   */
  catchUpByDevice(signal?: AbortSignal): Promise<ReplayCounts> {
    return this.#observed(() => this.#eachDevice(signal));
  }

  async #eachDevice(signal?: AbortSignal): Promise<ReplayCounts> {
    const { source, exclusively, checkpoints } = this.#options;
    const request = signal ? { signal } : {};
    const horizon = await source.look();
    const { position } = await this.#follower.load(this.#name);
    let counts = none;
    if (isIdle(position, horizon)) return counts;
    for (const device of await source.devices(position.floor, horizon.id)) {
      signal?.throwIfAborted();
      counts = sum(counts, (await this.catchUpDevice(device, request)) ?? none);
    }
    await exclusively(lockIds.replay, async (section) => {
      const { position, version } = await this.#follower.load(this.#name);
      const mark = position.awaits ?? horizon;
      const settled = await source.isSettled(mark);
      // Query after the writers have ended, so that a device whose first row committed late is included.
      const devices = settled ? await source.devices(position.floor, mark.id) : [];
      let floor = settled ? mark.id : position.floor;
      for (const device of devices)
        floor = earlier(floor, (await this.#follower.load(this.#checkpointOf(device))).position.floor);
      const waiting = { ...position, awaits: mark };
      const done = settled && floor === mark.id;
      if (!done && position.awaits) return;
      const next = (done && latePass(waiting, horizon)?.position(floor)) || waiting;
      await section.transaction((tx) => checkpoints.save(tx, this.#name, next, { expectedVersion: version }));
    });
    return counts;
  }

  /** Runs until the signal fires. Logs an error and tries again. */
  async follow({ signal, intervalMs = 5000, mode = 'in-order' }: FollowOptions): Promise<void> {
    await keepAtIt({ signal, intervalMs, logger: this.#logger, what: this.#name }, async () => {
      const counts = await (mode === 'in-order' ? this.catchUp({ signal }) : this.catchUpByDevice(signal));
      if (counts && counts.processed > 0)
        this.#logger.info({ ...counts, source: this.#name }, 'replay processed reads that had been missed');
    });
  }

  /** Replays a range that a user names, whatever the checkpoint says; without `from` and `to`, from the checkpoint. */
  async replay(request: ReplayRequest = {}): Promise<ReplayCounts> {
    const { from, to, device, tenantId = 'default', waitMs = 30_000 } = request;
    const wanted = device === undefined ? undefined : { deviceId: device.trim(), tenantId };
    if (from !== undefined) checkEnd(from, 'from');
    if (to !== undefined) checkEnd(to, 'to');
    const attempt = (): Promise<ReplayCounts | undefined> => {
      if (from !== undefined || to !== undefined) return this.#observed(() => this.#stretch(request, wanted));
      return wanted ? this.catchUpDevice(wanted, request) : this.catchUp(request);
    };
    const deadline = Date.now() + waitMs;
    for (;;) {
      const counts = await attempt();
      if (counts) return counts;
      if (Date.now() >= deadline)
        throw new TallymanError(
          'BAD_STATE',
          `another replay of ${device === undefined ? 'all devices' : `device "${device}"`} has been running for ${waitMs} ms; try again when it has finished`,
        );
      await sleep(retryPauseMs, undefined, request.signal ? { signal: request.signal } : {});
    }
  }

  async #stretch(
    { from, to, onProgress, signal }: ReplayRequest,
    device: SourceDevice | undefined,
  ): Promise<ReplayCounts | undefined> {
    const { source, exclusively } = this.#options;
    const selection: Selection = {
      device,
      fromTime: from !== undefined && !isId(from) ? from : undefined,
      toTime: to !== undefined && !isId(to) ? to : undefined,
    };
    const after = from !== undefined && isId(from) ? String(BigInt(from) - 1n) : '0';
    const lockId = device ? deviceLockId(device.deviceId) : lockIds.replay;
    const result = await exclusively(
      lockId,
      async (section) => {
        const newest = (await source.look()).id;
        const upTo = to !== undefined && isId(to) ? earlier(to, newest) : newest;
        const total = onProgress ? await source.count(after, upTo, selection) : 0;
        const tell = teller(total, onProgress);
        let at = after;
        while (isAfter(upTo, at)) {
          section.signal.throwIfAborted();
          const rows = await source.read(at, upTo, this.#batch, selection);
          at = endOf(rows, this.#batch, upTo);
          tell((await this.#commit(section, rows)).counts, at);
        }
        return tell(none, at);
      },
      signal ? { signal } : {},
    );
    return result.ran ? result.value : undefined;
  }

  /** One batch, all or nothing. `save` moves the checkpoint and returns its version. */
  async #commit(
    section: Section,
    rows: readonly SourceRow[],
    save?: (tx: Queryable) => Promise<number>,
  ): Promise<{ counts: ReplayCounts; version: number }> {
    const { processor, observer } = this.#options;
    const examined = await processor.examine(rows.filter(({ epc }) => !processor.ignores(epc)).map(toRead));
    for (let attempt = 1; ; attempt += 1) {
      try {
        const done = await section.transaction(async (tx) => {
          const fresh = await unprocessed(tx, examined);
          // With a checkpoint, a failed read becomes a job, not a second recorded failure.
          const known = save && (await failedBefore(tx, fresh.failures));
          const results = await processor.processWithin(tx, known ? without(fresh, known) : fresh, {
            thorough: attempt > 1,
          });
          const version = (await save?.(tx)) ?? 0;
          const duplicates = examined.sound.length - fresh.sound.length;
          return { counts: sum(countsOf(rows.length, results), { ...none, duplicates }), version };
        });
        observer?.replayed(done.counts);
        return done;
      } catch (error) {
        if (attempt >= patience || !isCollision(error)) throw error;
      }
    }
  }

  async #observed<T>(work: () => Promise<T>): Promise<T> {
    const { observer } = this.#options;
    try {
      const counts = await work();
      observer?.replayEnded(counts === undefined ? 'busy' : 'done');
      return counts;
    } catch (error) {
      observer?.replayEnded('failed');
      throw error;
    }
  }

  #checkpointOf({ tenantId, deviceId }: SourceDevice): string {
    const name = `${this.#name}/${tenantId}/${deviceId}`;
    return Buffer.byteLength(name) <= longestName ? name : `${this.#name}/${hash('sha256', name)}`;
  }
}

const isId = (text: string): boolean => /^\d{1,18}$/.test(text);

function checkEnd(text: string, name: string): void {
  if (isId(text)) return;
  try {
    parseInstant(text);
  } catch (error) {
    throw new TallymanError('BAD_OPTION', `${name} must be the id of a read or a time: ${messageOf(error)}`, {
      cause: error,
    });
  }
}
