import type { Database } from '../database/database.ts';
import { messageOf } from '../errors.ts';
import { handOver } from '../sql/hand-over.ts';
import { leave } from '../sql/leave.ts';
import { release } from '../sql/release.ts';
import { releaseUnknown } from '../sql/release-unknown.ts';
import { type ClaimedItem, ClaimedJob } from './claim.ts';
import type { Runner } from './runner.ts';

/** Gives back what a worker has claimed, without an outcome and at no cost. */
export class HandBack {
  readonly #database: Database;
  readonly #worker: string;
  readonly #runner: Runner;

  constructor(database: Database, worker: string, runner: Runner) {
    this.#database = database;
    this.#worker = worker;
    this.#runner = runner;
  }

  /** Jobs that were not started, or are given up. */
  async release(items: readonly ClaimedItem[]): Promise<void> {
    const ours = items.filter((item) => !item.claim.lost);
    if (ours.length === 0) return;
    try {
      await release(this.#database, {
        worker: this.#worker,
        tokens: ours.map((item) => item.claim.token),
        positions: ours.map((item) => item.pos),
      });
    } catch (error) {
      this.#runner.events.emit('error', error as Error);
      this.#database.logger.warn(
        { error: messageOf(error), worker: this.#worker },
        'handing back failed; the leases will run out instead',
      );
    }
    for (const item of ours) this.#runner.gone(item);
  }

  /** Moves jobs of unknown kinds to streams that only workers which know the kind claim from. */
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
      await handOver(this.#database, {
        worker: this.#worker,
        tokens: items.map((item) => item.claim.token),
        streams: items.map((item) => item.claim.stream),
        positions: items.map((item) => item.pos),
        kinds,
      });
    } catch (error) {
      this.#runner.returnUnknown(items);
      throw error;
    }
    for (const item of items) this.#runner.gone(item);
  }

  /**
   * A claim whose answer was lost on its way is held and renewed, but unknown here. Called while no claim
   * is under way: what is not known now never will be. True: there was one.
   */
  async unknownClaims(): Promise<boolean> {
    const claims = await releaseUnknown(this.#database, {
      worker: this.#worker,
      known: [...this.#runner.leases.tokens, ...this.#runner.settler.drops],
    });
    if (claims > 0)
      this.#database.logger.warn(
        { worker: this.#worker, claims },
        'handed back work whose claim was never answered',
      );
    return claims > 0;
  }

  /** Hands back everything that is still claimed, and ends the worker's presence. */
  async leave(): Promise<void> {
    await leave(this.#database, { worker: this.#worker }).catch((error) => {
      this.#database.logger.warn(
        { error: messageOf(error), worker: this.#worker },
        'the worker could not sign off; what it held is taken over in a moment',
      );
    });
  }
}
