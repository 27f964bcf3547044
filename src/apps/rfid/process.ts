import type { Queryable } from '../../engine/database/database.ts';
import type { Transactor } from '../../engine/locks/exclusive.ts';
import { type Micros, parseInstant, secondsToMicros } from '../instant.ts';
import { type Decision, decide, type Outcome } from './decide.ts';
import { examine } from './examine.ts';
import type { ExaminedBatch } from './examined-batch.ts';

import type { DeviceDirectory } from './reference/devices.ts';
import { SharedCommits } from './shared-commits.ts';
import { returnBaskets } from './shipments/return-door.ts';
import { columnsOf, findProcessed, record, takeBaskets } from './store.ts';
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
}

/** How often a batch is tried again that met another at the same keys. */
const patience = 5;

const nothing: Decision = { movements: [], baskets: [], outcomes: [] };

/**
 * Turns tag reads into baskets and movements, each read once, whichever way and however often it comes.
 *
 * One transaction of a few statements, whatever the number of reads; answers come after its commit. Calls that come
 * while two are under way share the next. Any number of processes may be at it: those that see the same basket wait for
 * each other. Who needs one call's reads to come before another's awaits the first.
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
  readonly #commits = new SharedCommits((batch) => this.#insist(batch));

  constructor(options: TagReadProcessorOptions) {
    this.#options = options;
    this.#earliest = parseInstant(options.earliest ?? '2000-01-01T00:00:00Z');
  }

  /** An answer for each read, in their order. Rejects only if nothing was committed, or nobody knows: ask again. */
  async processTagReads(reads: readonly TagRead[]): Promise<ReadResult[]> {
    return this.#commits.add(await this.examine(reads));
  }

  async #insist(batch: ExaminedBatch): Promise<ReadResult[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#options.database.transaction((tx) => this.processWithin(tx, batch));
      } catch (error) {
        if (attempt >= patience || !isCollision(error)) throw error;
      }
    }
  }

  /** The second half, as a part of the caller's transaction, such as one that also moves a checkpoint. */
  async processWithin(tx: Queryable, { sound, failures, places }: ExaminedBatch): Promise<ReadResult[]> {
    let decision = nothing;
    let movementIds: readonly string[] = [];
    if (sound.length > 0) {
      const columns = columnsOf(sound);
      const baskets = await takeBaskets(tx, columns);
      // After the locks: whoever processed one of these reads has committed by now.
      decision = decide(sound, { baskets, processed: await findProcessed(tx, columns) });
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
 * A key that somebody else took meanwhile can only be the id of a tag read that came under two EPCs; a deadlock only be
 * with a stranger's transaction. Either is decided the next time.
 */
export const isCollision = (error: unknown): boolean =>
  ['23505', '40001', '40P01'].includes((error as { code?: string } | null)?.code ?? '');
