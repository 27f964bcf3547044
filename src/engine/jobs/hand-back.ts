import type { Database } from '../database/database.ts';
import { messageOf } from '../errors.ts';
import { type ClaimedItem, ClaimedJob } from './claim.ts';
import type { Runner } from './runner.ts';

/** What a worker has claimed and gives to others without an outcome, at the cost of no attempt. */
export class HandBack {
  readonly #database: Database;
  readonly #worker: string;
  readonly #runner: Runner;

  constructor(database: Database, worker: string, runner: Runner) {
    this.#database = database;
    this.#worker = worker;
    this.#runner = runner;
  }

  /** What was not started, or is given up. */
  async release(items: readonly ClaimedItem[]): Promise<void> {
    const ours = items.filter((item) => !item.claim.lost);
    if (ours.length === 0) return;
    try {
      await this.#database.query('select tallyman.release($1, $2, $3)', [
        this.#worker,
        ours.map((item) => item.claim.token),
        ours.map((item) => item.pos),
      ]);
    } catch (error) {
      this.#runner.events.emit('error', error as Error);
      this.#database.logger.warn(
        { error: messageOf(error), worker: this.#worker },
        'handing back failed; the leases will run out instead',
      );
    }
    for (const item of ours) this.#runner.gone(item);
  }

  /** Jobs of kinds that this worker does not know go where only those look that do. */
  async unknown(): Promise<void> {
    const items = this.#runner.takeUnknown();
    if (items.length === 0) return;
    const kinds = items.map((item) =>
      item instanceof ClaimedJob ? item.kind : (item.jobs[item.next - 1]?.kind ?? ''),
    );
    for (const kind of new Set(kinds)) {
      this.#runner.events.emit('unknownKind', { kind });
      this.#database.logger.warn(
        { kind, worker: this.#worker },
        'a job of a kind that this worker does not know was left for one that does',
      );
    }
    for (const item of items)
      if (!(item instanceof ClaimedJob)) await this.#runner.settler.laneConfirmed(item);
    try {
      await this.#database.query('select tallyman.hand_over($1, $2, $3, $4, $5)', [
        this.#worker,
        items.map((item) => item.claim.token),
        items.map((item) => item.claim.stream),
        items.map((item) => item.pos),
        kinds,
      ]);
    } catch (error) {
      this.#runner.returnUnknown(items);
      throw error;
    }
    for (const item of items) this.#runner.gone(item);
  }

  /**
   * A claim whose answer was lost on its way is held, and renewed, and nobody here knows of it. Called while no claim
   * is under way: whatever the runner does not know now, it never will.
   */
  async strays(): Promise<void> {
    const tokens = this.#runner.leases.takeStrays();
    if (tokens.length === 0) return;
    await this.#database.query(
      `select tallyman.release($1, array_agg(c.token), array_agg(p))
         from tallyman.claims c, unnest(c.positions) p where c.worker = $1 and c.token = any ($2)`,
      [this.#worker, tokens],
    );
    this.#database.logger.warn(
      { worker: this.#worker, claims: tokens.length },
      'handed back work whose claim was never answered',
    );
  }

  /** The rows of claims of which nothing is left. */
  async drop(): Promise<void> {
    const drops = this.#runner.settler.takeDrops();
    if (drops.length > 0)
      await this.#database
        .query('delete from tallyman.claims where token = any ($1) and worker = $2', [drops, this.#worker])
        .catch(() => {});
  }
}
