import { randomUUID } from 'node:crypto';
import type { Database } from '../../engine/database/database.ts';
import type { RateLimit } from './rate-limit.ts';

/** Keys told at once; the busiest matter. */
const mostKeys = 1_000;

/**
 * Makes the limit of a key, or of all keys of a tenant, hold for all processes together. Each calls `share` once a second: it tells
 * how often it was asked, and grants its part of the limit. So the limit is kept within about a second: when load comes to a process, that
 * second is granted with the part that it had before, or in full if it had none.
 *
 * While the database cannot be asked, the last parts stay.
 */
export class FleetRates {
  readonly #database: Database;
  readonly #limit: RateLimit;
  readonly #process = randomUUID();

  constructor(database: Database, limit: RateLimit) {
    this.#database = database;
    this.#limit = limit;
  }

  /** Tells and asks now. Nothing is asked where nobody came. */
  async share(): Promise<void> {
    const demand = [...this.#limit.takeDemand()].sort(([, a], [, b]) => b - a).slice(0, mostKeys);
    if (demand.length === 0) return this.#limit.setShares(new Map());
    const { rows } = await this.#database.query<{ key_id: string; share: number }>(
      'select key_id, share from tallyman_server.share_rates($1, $2, $3)',
      [this.#process, demand.map(([key]) => key), demand.map(([, requests]) => requests)],
    );
    this.#limit.setShares(new Map(rows.map(({ key_id, share }) => [key_id, share])));
  }
}
