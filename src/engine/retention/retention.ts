import type { Transactor } from '../locks/exclusive.ts';
import { ensureHistory } from '../sql/ensure-history.ts';
import { purgeHistory } from '../sql/purge-history.ts';
import { purgeLeftovers } from '../sql/purge-leftovers.ts';
import { milliseconds } from '../sql/sql-function.ts';

export interface RetentionOptions {
  /** How long finished jobs are kept, at least. Zero: successes are not kept at all. Default 7 days. */
  readonly keepMs?: number;
  /** A lane that has been empty for this long is deleted, and created again when it is needed. Default 1 day. */
  readonly laneRestMs?: number;
  /** History partitions are made this many days ahead. Default: what `tallyman.ensure_history` has. */
  readonly daysAhead?: number;
  /** Rows deleted in one transaction. Default 2000. */
  readonly biteSize?: number;
}

export interface RetentionReport {
  readonly partitionsMade: number;
  readonly partitionsDropped: readonly string[];
  readonly keysPurged: number;
  readonly lanesPurged: number;
  /** Steps that found a table in use and left it for the next round. */
  readonly postponed: readonly ('ensure' | 'purge')[];
}

const dayMs = 24 * 60 * 60 * 1000;

/**
 * Adding or dropping a partition locks the history for a moment. Behind a long reader that lock would wait, and every
 * worker that writes history would wait behind it. So give up soon, and try again in the next round.
 */
const lockTimeout = `set local lock_timeout = '1s'`;

/** A round deletes at most this many batches; the next one continues. */
const maxBatches = 200;

/** Keeps the tables small: creates history partitions ahead, drops old ones as a whole, deletes leftovers in batches. */
export class Retention {
  readonly #keepMs: number;
  readonly #laneRestMs: number;
  readonly #daysAhead: number | undefined;
  readonly #biteSize: number;

  constructor(options: RetentionOptions = {}) {
    // Failures are written to history even where successes are not, and a person needs a day to see them.
    this.#keepMs = Math.max(options.keepMs ?? 7 * dayMs, dayMs);
    this.#laneRestMs = options.laneRestMs ?? dayMs;
    this.#daysAhead = options.daysAhead;
    this.#biteSize = options.biteSize ?? 2000;
  }

  /** One round. Each step commits by itself; between steps a fired signal ends it. */
  async run(on: Transactor, signal?: AbortSignal): Promise<RetentionReport> {
    const postponed: ('ensure' | 'purge')[] = [];
    const made = await unlessInUse(() => this.ensurePartitions(on));
    if (made === undefined) postponed.push('ensure');
    const dropped = signal?.aborted ? [] : await unlessInUse(() => this.purgeHistory(on));
    if (dropped === undefined) postponed.push('purge');
    const leftovers = await this.purgeLeftovers(on, signal);
    return { partitionsMade: made ?? 0, partitionsDropped: dropped ?? [], ...leftovers, postponed };
  }

  async ensurePartitions(on: Transactor): Promise<number> {
    return on.transaction(async (tx) => {
      await tx.query(lockTimeout);
      return ensureHistory(tx, { daysAhead: this.#daysAhead });
    });
  }

  /** Returns the partitions that were dropped. */
  async purgeHistory(on: Transactor): Promise<string[]> {
    return on.transaction(async (tx) => {
      await tx.query(lockTimeout);
      return purgeHistory(tx, { keep: milliseconds(this.#keepMs) });
    });
  }

  /** Dedupe keys whose time is past and lanes long at rest. */
  async purgeLeftovers(
    on: Transactor,
    signal?: AbortSignal,
  ): Promise<{ readonly keysPurged: number; readonly lanesPurged: number }> {
    let keysPurged = 0;
    let lanesPurged = 0;
    for (let bite = 0; bite < maxBatches && !signal?.aborted; bite += 1) {
      const { keys, lanes } = await on.transaction((tx) =>
        purgeLeftovers(tx, { laneRest: milliseconds(this.#laneRestMs), limit: this.#biteSize }),
      );
      keysPurged += keys;
      lanesPurged += lanes;
      if (keys < this.#biteSize && lanes < this.#biteSize) break;
    }
    return { keysPurged, lanesPurged };
  }
}

/** Undefined when a lock could not be had in time (55P03). */
async function unlessInUse<T>(step: () => Promise<T>): Promise<T | undefined> {
  try {
    return await step();
  } catch (error) {
    if ((error as { code?: string }).code === '55P03') return undefined;
    throw error;
  }
}
