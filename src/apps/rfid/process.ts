import type { Queryable } from '../../engine/database/database.ts';
import { type Micros, parseInstant, secondsToMicros } from '../../engine/instant.ts';
import type { Transactor } from '../../engine/locks/exclusive.ts';
import { type Decision, decide, type Outcome, perhapsProcessed } from './decide.ts';
import { examine } from './examine.ts';
import { type BatchPart, type ExaminedBatch, splitByBasket } from './examined-batch.ts';
import type { DeviceDirectory } from './reference/devices.ts';
import { SharedCommits } from './shared-commits.ts';
import { returnBaskets } from './shipments/return-door.ts';
import { columnsOf, findProcessed, type ReadColumns, record, takeBaskets } from './store.ts';
import { recordFailures } from './store-failures.ts';
import type { ExaminedRead, FailedRead, ReadResult, TagRead } from './tag-read.ts';

export interface TagReadProcessorOptions {
  readonly database: Transactor;
  readonly devices: DeviceDirectory;
  /** Gets the reads that failed, inside the transaction that records them. Default: they are recorded only. */
  readonly onFailed?: (tx: Queryable, failures: readonly FailedRead[]) => Promise<void>;
  /** How far a reader's clock may be ahead. Default 5 minutes. */
  readonly futureToleranceMs?: number;
  /** Reads before this are refused: the reader's clock was not set. Default 2000-01-01. */
  readonly earliest?: string;
  /** Milliseconds since 1970. Default: the process's clock. */
  readonly now?: () => number;
  /** Transactions that `processTagReads` may have under way at once, each for baskets of its own. Default 3. */
  readonly lanes?: number;
}

export interface ProcessOptions {
  /**
   * Look every read up. Otherwise one that is newer than its basket's last one is taken for new, which it is unless somebody
   * has put the basket's time back by hand; then its key collides.
   */
  readonly thorough?: boolean;
  /** Of the sound reads, where the caller has made them already. */
  readonly columns?: ReadColumns;
}

/** How often a batch is tried again that met another at the same keys. */
const patience = 5;

/** Fewer reads than this are not worth a second transaction. */
const fewestApart = 300;

const nothing: Decision = { movements: [], baskets: [], outcomes: [] };

/**
 * Turns tag reads into baskets and movements, each read once, whichever way and however often it comes.
 *
 * A few statements in one transaction, whatever the number of reads; answers come after its commit. Baskets are dealt out to a
 * few lanes, so that several transactions are under way and never wait for each other; calls that come meanwhile share the
 * next. Any number of processes may be at it: those that see the same basket wait for each other. Reads of one basket are
 * decided in the order of the calls.
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
  readonly #lanes: readonly SharedCommits[];

  constructor(options: TagReadProcessorOptions) {
    this.#options = options;
    this.#lanes = Array.from(
      { length: options.lanes ?? 3 },
      () => new SharedCommits((batch) => this.commit(batch)),
    );
    this.#earliest = parseInstant(options.earliest ?? '2000-01-01T00:00:00Z');
  }

  /** The same, with its transactions elsewhere: in the database as one tenant sees it. */
  on(database: Transactor): TagReadProcessor {
    return new TagReadProcessor({ ...this.#options, database });
  }

  /**
   * An answer for each read, in their order. Rejects if not all of them are committed for certain: ask again, and what had been
   * is a duplicate. Reads of one basket are never in two transactions of a call; those of different baskets may be.
   */
  async processTagReads(reads: readonly TagRead[]): Promise<ReadResult[]> {
    const parts = splitByBasket(await this.examine(reads), this.#lanes.length);
    return together(parts, ({ lane, batch }) => (this.#lanes[lane] as SharedCommits).add(batch));
  }

  /**
   * A batch in as many transactions as there are lanes, at once, each for baskets of its own; a small one in a single transaction.
   * `alongside` commits with the reads at the places it is given, and may be run more than once. Batches whose order matters come one
   * after another.
   */
  commitApart(
    batch: ExaminedBatch,
    alongside: (tx: Queryable, places: readonly number[]) => Promise<void>,
  ): Promise<ReadResult[]> {
    const parts = splitByBasket(batch, batch.places.length < fewestApart ? 1 : this.#lanes.length);
    return together(parts, ({ batch: part, from }) => this.commit(part, (tx) => alongside(tx, from)));
  }

  /** A batch in a transaction of its own. `alongside` commits with it, and may be run more than once. */
  async commit(batch: ExaminedBatch, alongside?: (tx: Queryable) => Promise<void>): Promise<ReadResult[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#options.database.transaction(async (tx) => {
          const beside = alongside?.(tx);
          // While the database is busy with that.
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
   * The second half, as a part of the caller's transaction, such as one that also moves a checkpoint. Whoever has no answer to a
   * key that collides asks for it to be thorough.
   */
  async processWithin(
    tx: Queryable,
    { sound, failures, places }: ExaminedBatch,
    { thorough = false, columns = columnsOf(sound) }: ProcessOptions = {},
  ): Promise<ReadResult[]> {
    let decision = nothing;
    let movementIds: readonly string[] = [];
    if (sound.length > 0) {
      const baskets = await takeBaskets(tx, columns);
      // After the locks: whoever processed one of these reads has committed by now.
      const suspects = thorough ? [...sound.keys()] : perhapsProcessed(sound, baskets);
      decision = decide(sound, { baskets, processed: await findProcessed(tx, sound, suspects) });
      movementIds = await record(tx, columns, decision);
      await returnBaskets(tx, decision.outcomes);
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

  /**
   * The first half, which needs no transaction and must not be in one: devices may have to be loaded, and if every
   * connection of the pool were held by somebody who waits for that, nobody would ever go on.
   */
  async examine(reads: readonly TagRead[]): Promise<ExaminedBatch> {
    const { devices, futureToleranceMs = 300_000, now = Date.now } = this.#options;
    const known = await devices.lookup(reads);
    const options = {
      now: now() * 1000,
      futureTolerance: (futureToleranceMs / 1000) * secondsToMicros,
      earliest: this.#earliest,
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

/** The answers to all parts, each in its place. What is not committed for certain is known only when all have ended. */
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
  const { basketId, movement, isNewBasket, skipReason } = outcome;
  return {
    success: true,
    basketId,
    movementId: typeof movement === 'number' ? (movementIds[movement] ?? null) : movement,
    isNewBasket,
    skipReason,
    errorMessage: null,
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
 * A key that is taken can only be the id of a tag read that came under two EPCs, or of a read whose basket was put back by hand; a
 * deadlock only be with a stranger's transaction. Each is decided the next time.
 */
export const isCollision = (error: unknown): boolean =>
  ['23505', '40001', '40P01'].includes((error as { code?: string } | null)?.code ?? '');
