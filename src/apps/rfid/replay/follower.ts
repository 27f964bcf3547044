/**
 * Reads a table by id from a checkpoint, under a lock, in batches; the checkpoint commits with what each batch did.
 */
import type { Checkpoints } from '../../../engine/checkpoints/checkpoints.ts';
import type { Queryable } from '../../../engine/database/database.ts';
import type { Exclusive, Section } from '../../../engine/locks/exclusive.ts';
import { none, type ReplayCounts, type ReplayProgress, teller } from './counts.ts';
import { isAfter, isIdle, latePass, newPass, type Pass, type Position, startingAt } from './position.ts';
import type { Selection, SourceDevice, SourceRow, TagReadSource } from './source.ts';

/** Runs a section under a lock, or not at all: `tallyman.exclusively`. */
export type Exclusively = <T>(
  lockId: bigint,
  work: (section: Section) => Promise<T>,
  options?: { readonly signal?: AbortSignal },
) => Promise<Exclusive<T>>;

export interface FollowerOptions {
  readonly source: TagReadSource;
  readonly checkpoints: Checkpoints;
  readonly exclusively: Exclusively;
  /** Rows in one transaction. */
  readonly batch: number;
}

/** What is read, under which lock, and where it is noted. */
export interface Scope {
  readonly checkpoint: string;
  readonly lockId: bigint;
  readonly device?: SourceDevice;
  readonly start?: string;
}

/** Does a batch in one transaction of the section. `save` moves the checkpoint, has to be in it, answers its version. */
export type CommitBatch = (
  section: Section,
  rows: readonly SourceRow[],
  save: (tx: Queryable) => Promise<number>,
) => Promise<{ readonly counts: ReplayCounts; readonly version: number }>;

export interface AdvanceOptions {
  readonly onProgress?: ((progress: ReplayProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export class Follower {
  readonly #options: FollowerOptions;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** From the checkpoint to the newest row. `undefined`: another instance holds the lock. */
  async advance(
    scope: Scope,
    commit: CommitBatch,
    { onProgress, signal }: AdvanceOptions = {},
  ): Promise<ReplayCounts | undefined> {
    const { source, exclusively, checkpoints, batch } = this.#options;
    // A query costs less than a connection and a lock, and mostly there is nothing to do.
    const seen = await this.load(scope.checkpoint, scope.start);
    if (isIdle(seen.position, await source.look())) return none;
    const result = await exclusively(
      scope.lockId,
      async (section) => {
        let { position, version } = await this.load(scope.checkpoint, scope.start);
        const horizon = await source.look();
        const selection: Selection = { device: scope.device };
        const total = onProgress ? await source.count(position.cursor, horizon.id, selection) : 0;
        const tell = teller(total, onProgress);
        const walk = async (pass: Pass): Promise<void> => {
          for (let at = pass.after; isAfter(pass.upTo, at); ) {
            section.signal.throwIfAborted();
            const rows = await source.read(at, pass.upTo, batch, selection);
            at = endOf(rows, batch, pass.upTo);
            const next = pass.position(at);
            const expectedVersion = version;
            const done = await commit(section, rows, (tx) =>
              checkpoints.save(tx, scope.checkpoint, next, { expectedVersion }),
            );
            position = next;
            version = done.version;
            tell(done.counts, at);
          }
        };
        const late = latePass(position, horizon);
        if (late && position.awaits && (await source.isSettled(position.awaits))) await walk(late);
        const fresh = newPass(position, horizon, await source.isSettled(horizon));
        if (fresh) await walk(fresh);
        return tell(none, position.cursor);
      },
      signal ? { signal } : {},
    );
    return result.ran ? result.value : undefined;
  }

  async load(checkpoint: string, start = '0'): Promise<{ position: Position; version: number }> {
    const saved = await this.#options.checkpoints.load<Position>(checkpoint);
    const position = saved?.position ?? startingAt(start);
    return {
      position: isAfter(start, position.cursor) ? startingAt(start) : position,
      version: saved?.version ?? 0,
    };
  }
}

/** Where a batch ends: at its last row, or, when there are no more, at the end of the range. */
export const endOf = (rows: readonly SourceRow[], limit: number, upTo: string): string =>
  rows.length < limit ? upTo : (rows.at(-1)?.id ?? upTo);
