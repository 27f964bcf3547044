import type { Queryable } from '../../engine/database/database.ts';
import { type Micros, parseInstant, secondsToMicros } from '../../engine/instant.ts';
import type { Transactor } from '../../engine/locks/exclusive.ts';
import { requireWhole } from '../../engine/validate.ts';
import { longestMs } from './config.ts';
import { correctMovements, placeBaskets } from './corrections.ts';
import { type Decision, decide, type Outcome, perhapsProcessed, sortOut } from './decide.ts';
import { type ClockRule, examine } from './examine.ts';
import { type BatchPart, type ExaminedBatch, splitByBasket } from './examined-batch.ts';
import { findNeighbours } from './history.ts';
import type { DeviceDirectory } from './reference/devices.ts';
import { SharedCommits } from './shared-commits.ts';
import { returnBaskets } from './shipments/return-door.ts';
import { columnsOf, countRepeats, findProcessed, type ReadColumns, save, takeBaskets } from './store.ts';
import { recordFailures } from './store-failures.ts';
import type { ExaminedRead, FailedRead, ReadResult, TagRead } from './tag-read.ts';
import { defaultTags, isIgnored, type TagFilter } from './tags.ts';
import { defaultRules, type MovementRules } from './track.ts';

export interface TagReadProcessorOptions {
  readonly database: Transactor;
  readonly devices: DeviceDirectory;
  /** Gets the failed reads, inside the transaction that records them. Default: they are only recorded. */
  readonly onFailed?: (tx: Queryable, failures: readonly FailedRead[]) => Promise<void>;
  /** How far a reader's clock may be ahead. Default 5 minutes. */
  readonly futureToleranceMs?: number;
  /** What becomes of reads that are ahead of their arrival. Default: kept. */
  readonly clock?: ClockRule | undefined;
  /** Which tags count. Default: those of GS1. */
  readonly tags?: TagFilter | undefined;
  /** Reads before this are refused: the reader's clock was not set. Default 2000-01-01. */
  readonly earliest?: string;
  /** Milliseconds since 1970. Default: the process's clock. */
  readonly now?: () => number;
  /** Transactions that `processTagReads` may run at once, each with its own baskets. Default 3. */
  readonly lanes?: number;
  /** What counts as a movement. */
  readonly movements?: MovementOptions;
}

export interface MovementOptions {
  /** The same movement again within this is counted on the first one. At most a day; 0 keeps every movement. Default 300,000. */
  readonly windowMs?: number;
  /** A shorter stay at a place is no movement. At most a day. Default 0. */
  readonly minimumStayMs?: number;
  /** Older late reads are stale. Default: as far back as the reads around them are kept. */
  readonly lateHorizonMs?: number | null;
}

export interface ProcessOptions {
  /**
   * Look every read up and judge it among the stored ones. Otherwise a read newer than its basket's last one is assumed to be new
   * and in order. That is wrong only if somebody has set the basket's time back by hand, or has changed the window; then a key collides.
   */
  readonly thorough?: boolean;
  /** Of the valid reads, where the caller has made them already. */
  readonly columns?: ReadColumns;
}

/** How often a batch is retried after it collided with another at the same keys. */
const patience = 5;

/** Fewer reads than this are not worth a second transaction. */
const fewestApart = 300;

const nothing: Decision = {
  movements: [],
  baskets: [],
  repetitions: [],
  returns: [],
  reordered: [],
  outcomes: [],
};

/**
 * Turns tag reads into baskets and movements, each read once, whichever path it takes and however often it arrives.
 *
 * A few statements in one transaction, whatever the number of reads; answers come after its commit. Baskets are divided
 * among a few lanes, so that several transactions run at once and never wait for each other. Calls that arrive meanwhile
 * share the next transaction. Any number of processes may run this: those that see the same basket wait for each other.
 * Movements follow the event times of a basket's reads: a late read is put in its place, and movements around it are corrected.
 *
 * @example
 * const processor = new TagReadProcessor({ database, devices });
 * const [result] = await processor.processTagReads([
 *   { epc: '3314257BF40C0E4000000190', deviceId: 'dock-1', eventTimestamp: '2026-03-01T09:30:00.123456Z',
 *     processorType: 'MQTT', tenantId: 'default' },
 * ]);
 */
export class TagReadProcessor {
  readonly #options: TagReadProcessorOptions;
  readonly #earliest: Micros;
  readonly #rules: MovementRules;
  readonly #lanes: readonly SharedCommits[];

  constructor(options: TagReadProcessorOptions) {
    this.#options = options;
    this.#lanes = Array.from(
      { length: options.lanes ?? 3 },
      () => new SharedCommits((batch) => this.commit(batch)),
    );
    this.#earliest = parseInstant(options.earliest ?? '2000-01-01T00:00:00Z');
    this.#rules = rulesOf(options.movements);
  }

  /** The same processor on another database handle, such as one that is limited to one tenant. */
  on(database: Transactor): TagReadProcessor {
    return new TagReadProcessor({ ...this.#options, database });
  }

  /**
   * Returns a result for each read, in order. Rejects if it is not certain that all of them are committed: send them again, and
   * those that were committed are duplicates. Reads of one basket are never in two transactions of a call.
   */
  async processTagReads(reads: readonly TagRead[]): Promise<ReadResult[]> {
    const parts = splitByBasket(await this.examine(reads), this.#lanes.length);
    return together(parts, ({ lane, batch }) => (this.#lanes[lane] as SharedCommits).add(batch));
  }

  /**
   * Processes a batch in up to one transaction per lane, at once, each with its own baskets; a small batch in one transaction.
   * `alongside` commits with the reads at the given indexes, and may run more than once. If the order of batches matters, the
   * caller sends them one after another.
   */
  commitApart(
    batch: ExaminedBatch,
    alongside: (tx: Queryable, places: readonly number[]) => Promise<void>,
  ): Promise<ReadResult[]> {
    const parts = splitByBasket(batch, batch.places.length < fewestApart ? 1 : this.#lanes.length);
    return together(parts, ({ batch: part, from }) => this.commit(part, (tx) => alongside(tx, from)));
  }

  /** Processes a batch in one transaction. `alongside` commits with it, and may run more than once. */
  async commit(batch: ExaminedBatch, alongside?: (tx: Queryable) => Promise<void>): Promise<ReadResult[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#options.database.transaction(async (tx) => {
          const beside = alongside?.(tx);
          // Runs while the database is busy with that.
          const columns = columnsOf(batch.sound);
          await beside;
          return this.processWithin(tx, batch, { thorough: attempt > 1, columns });
        });
      } catch (error) {
        if (attempt >= patience || !isCollision(error)) throw error;
      }
    }
  }

  /**
   * The second half, inside the caller's transaction, such as one that also moves a checkpoint. A caller that cannot handle a
   * key collision must ask for it to be thorough.
   */
  async processWithin(
    tx: Queryable,
    { sound, failures, places }: ExaminedBatch,
    { thorough = false, columns = columnsOf(sound) }: ProcessOptions = {},
  ): Promise<ReadResult[]> {
    let decision = nothing;
    let movementIds: readonly string[] = [];
    if (sound.length > 0) {
      const baskets = await takeBaskets(tx, columns, this.#rules.window);
      // After the locks: a transaction that processed one of these reads has committed by now.
      const suspects = thorough ? [...sound.keys()] : perhapsProcessed(sound, baskets);
      const sorted = sortOut(sound, baskets, await findProcessed(tx, sound, suspects));
      const options = { rules: this.#rules, horizon: this.#horizon(), thorough };
      decision = decide(sound, await findNeighbours(tx, sound, sorted, options), this.#rules);
      await correctMovements(tx, decision);
      movementIds = await save(tx, columns, decision);
      await countRepeats(tx, decision);
      await placeBaskets(tx, decision, movementIds);
      await returnBaskets(tx, decision.returns);
    }
    if (failures.length > 0) {
      await recordFailures(tx, failures);
      await this.#options.onFailed?.(tx, failures);
    }
    return places.map(({ sound, place }) =>
      sound
        ? succeeded(decision.outcomes[place] as Outcome, movementIds)
        : failed(failures[place] as FailedRead),
    );
  }

  /** A tag that the configuration ignores: callers count its reads and leave them out. */
  ignores(epc: string): boolean {
    return isIgnored(this.#options.tags ?? defaultTags, epc);
  }

  #horizon(): Micros | null {
    const { movements, now = Date.now } = this.#options;
    const horizonMs = movements?.lateHorizonMs ?? null;
    return horizonMs === null ? null : (now() - horizonMs) * 1000;
  }

  /**
   * The first half, which needs no transaction and must not run in one: it may have to load devices. If every connection of the
   * pool were held by a caller that waits for that, none could proceed.
   */
  async examine(reads: readonly TagRead[]): Promise<ExaminedBatch> {
    const { devices, futureToleranceMs = 300_000, now = Date.now, clock, tags } = this.#options;
    const known = await devices.lookup(reads);
    const options = {
      now: now() * 1000,
      futureTolerance: (futureToleranceMs / 1000) * secondsToMicros,
      earliest: this.#earliest,
      clock,
      tags,
      deviceOf: known,
    };
    const sound: ExaminedRead[] = [];
    const failures: FailedRead[] = [];
    const places = reads.map((given) => {
      const examined = examine(given, options);
      const place = examined.ok ? sound.push(examined.read) : failures.push(examined.failure);
      return { sound: examined.ok, place: place - 1 };
    });
    return { sound, failures, places };
  }
}

function rulesOf({ windowMs, minimumStayMs }: MovementOptions = {}): MovementRules {
  for (const [name, value] of Object.entries({ windowMs, minimumStayMs }))
    if (value !== undefined) requireWhole(value, `movements.${name}`, 0, longestMs);
  return {
    window: windowMs === undefined ? defaultRules.window : windowMs * 1000,
    minimumStay: minimumStayMs === undefined ? defaultRules.minimumStay : minimumStayMs * 1000,
  };
}

/** Puts the answers of all parts in their places. What is committed is known only when all parts have ended. */
async function together(
  parts: readonly BatchPart[],
  commit: (part: BatchPart) => Promise<ReadResult[]>,
): Promise<ReadResult[]> {
  const outcomes = await Promise.allSettled(parts.map(commit));
  const results: ReadResult[] = [];
  for (const [n, { from }] of parts.entries()) {
    const outcome = outcomes[n] as PromiseSettledResult<ReadResult[]>;
    if (outcome.status === 'rejected') throw outcome.reason;
    for (const [i, place] of from.entries()) results[place] = outcome.value[i] as ReadResult;
  }
  return results;
}

function succeeded(outcome: Outcome, movementIds: readonly string[]): ReadResult {
  const { basketId, movement, isNewBasket, skipReason, corrections } = outcome;
  return {
    success: true,
    basketId,
    movementId: typeof movement === 'number' ? (movementIds[movement] ?? null) : movement,
    isNewBasket,
    skipReason,
    errorMessage: null,
    ...(corrections !== undefined && { corrections }),
  };
}

const failed = ({ message }: FailedRead): ReadResult => ({
  success: false,
  basketId: null,
  movementId: null,
  isNewBasket: false,
  skipReason: null,
  errorMessage: message,
});

/**
 * A key can collide only for the id of a tag read that came with two EPCs, or for a read whose basket was set back by hand; a
 * deadlock can happen only with a transaction that is not ours. The retry decides each of these.
 */
export const isCollision = (error: unknown): boolean =>
  ['23505', '40001', '40P01'].includes((error as { code?: string } | null)?.code ?? '');
