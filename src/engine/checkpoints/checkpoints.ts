import type { Queryable } from '../database/database.ts';
import { TallymanError } from '../errors.ts';
import { requireText, requireWhole } from '../validate.ts';

export interface Checkpoint<Position = unknown> {
  readonly position: Position;
  /** Grows by one with every save; 1 after the first. */
  readonly version: number;
  readonly updatedAt: Date;
}

export interface SaveOptions {
  /**
   * Save only on top of this version; 0 means that there must be none yet. A writer that was paused and replaced comes
   * back with an old version and is refused (CHECKPOINT_CONFLICT). Default: save whatever is there, for sources that
   * have their single writer by other means, such as an exclusive section.
   */
  readonly expectedVersion?: number;
}

interface Row {
  position: string;
  version: string;
  updated_at: Date;
}

/** All three rely on checkpoints_pkey. */
const select = 'select position::text, version, updated_at from tallyman.checkpoints where source = $1';

const saveAnyway = `
  insert into tallyman.checkpoints as c (source, position) values ($1, $2)
  on conflict (source) do update set position = excluded.position, version = c.version + 1, updated_at = now()
  returning version`;

const saveFirst = `
  insert into tallyman.checkpoints (source, position) values ($1, $2) on conflict (source) do nothing
  returning version`;

/** Waits for a writer that holds the row, then checks the condition against the version it left. */
const saveOnTop = `
  update tallyman.checkpoints set position = $2, version = version + 1, updated_at = now()
   where source = $1 and version = $3
  returning version`;

/**
 * How far a source was read, committed together with what was read: after a crash both are there or neither.
 *
 * @example
 * const at = await checkpoints.load<number>('replay');
 * await database.transaction(async (tx) => {
 *   await writeEffects(tx, batch);
 *   await checkpoints.save(tx, 'replay', batch.end, { expectedVersion: at?.version ?? 0 });
 * });
 */
export class Checkpoints {
  readonly #database: Queryable;

  constructor(database: Queryable) {
    this.#database = database;
  }

  /** Undefined when the source was never saved. `on` reads inside a transaction. */
  async load<Position = unknown>(
    source: string,
    on: Queryable = this.#database,
  ): Promise<Checkpoint<Position> | undefined> {
    requireText(source, 'source', 256);
    const { rows } = await on.query<Row>(select, [source]);
    const row = rows[0];
    if (!row) return undefined;
    return { position: JSON.parse(row.position), version: Number(row.version), updatedAt: row.updated_at };
  }

  /** Returns the new version. If it throws, do not commit the transaction: another writer has done its work. */
  async save(tx: Queryable, source: string, position: unknown, options: SaveOptions = {}): Promise<number> {
    requireText(source, 'source', 256);
    const text = JSON.stringify(position);
    if (text === undefined)
      throw new TallymanError('BAD_OPTION', `position of checkpoint "${source}" cannot be written as JSON`);
    const { expectedVersion } = options;
    if (expectedVersion !== undefined)
      requireWhole(expectedVersion, 'expectedVersion', 0, Number.MAX_SAFE_INTEGER);
    const { rows } =
      expectedVersion === undefined
        ? await tx.query(saveAnyway, [source, text])
        : expectedVersion === 0
          ? await tx.query(saveFirst, [source, text])
          : await tx.query(saveOnTop, [source, text, expectedVersion]);
    if (rows[0]) return Number(rows[0].version);
    const now = await this.load(source, tx);
    throw new TallymanError(
      'CHECKPOINT_CONFLICT',
      `checkpoint "${source}" is at version ${now?.version ?? 0}, not at ${expectedVersion}: somebody else reads this source. Roll back and load it again.`,
      { details: { source, expectedVersion, version: now?.version ?? 0 } },
    );
  }
}
