import type pg from 'pg';
import { TallymanError } from '../errors.ts';
import { isOutage } from './outage.ts';
import { openingOf } from './session.ts';

export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
  /** Prepared under this name; undefined: parsed each time. */
  readonly name?: string | undefined;
}

/**
 * Transactions whose statements are all known beforehand: they go out together, without waiting for an answer in between.
 * On connections of their own, opened when first needed: a client that pipelines cannot run the statements of the
 * hot paths, nor those of a transaction whose next statement depends on the answer to the last one.
 */
export class Pipeline {
  readonly #open: () => Promise<pg.Client>;
  readonly #maxConnections: number;
  readonly #idle: pg.Client[] = [];
  readonly #waiting: ((client: pg.Client | undefined) => void)[] = [];
  #connections = 0;
  #isClosed = false;

  /** `maxConnections`: connections, and with them transactions, under way at once. */
  constructor(open: () => Promise<pg.Client>, maxConnections: number) {
    this.#open = open;
    this.#maxConnections = maxConnections;
  }

  /**
   * All of them in one commit, or none. Returns the result of each; the error of the first that failed. `opening` is
   * SQL without parameters that goes out with `begin`.
   */
  async transaction(statements: readonly Statement[], opening?: string): Promise<pg.QueryResult[]> {
    const client = await this.#take();
    let broken = false;
    try {
      const sent = [
        client.query(openingOf({ opening })),
        ...statements.map(({ text, values, name }) =>
          client.query({ text, values: [...values], ...(name !== undefined && { name }) }),
        ),
        client.query('commit'),
      ];
      const settled = await Promise.allSettled(sent);
      const failed = settled.find((outcome) => outcome.status === 'rejected');
      if (failed) {
        broken = isOutage(failed.reason);
        throw failed.reason;
      }
      const results = settled.map((outcome) => (outcome as PromiseFulfilledResult<pg.QueryResult>).value);
      if (results.at(-1)?.command !== 'COMMIT')
        throw new TallymanError('ROLLED_BACK', 'PostgreSQL rolled the transaction back');
      return results.slice(1, -1);
    } finally {
      this.#giveBack(client, broken);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#idle.splice(0).map((client) => client.end()));
  }

  async #take(): Promise<pg.Client> {
    for (;;) {
      const idle = this.#idle.pop();
      if (idle) return idle;
      if (this.#connections < this.#maxConnections) break;
      const client = await new Promise<pg.Client | undefined>((resolve) => this.#waiting.push(resolve));
      if (client) return client;
    }
    this.#connections += 1;
    try {
      const client = await this.#open();
      client.once('end', () => {
        const at = this.#idle.indexOf(client);
        if (at < 0) return;
        this.#idle.splice(at, 1);
        this.#connections -= 1;
      });
      return client;
    } catch (error) {
      this.#connections -= 1;
      this.#waiting.shift()?.(undefined);
      throw error;
    }
  }

  #giveBack(client: pg.Client, broken: boolean): void {
    if (broken || this.#isClosed) {
      this.#connections -= 1;
      void client.end().catch(() => {});
      this.#waiting.shift()?.(undefined);
      return;
    }
    const next = this.#waiting.shift();
    if (next) next(client);
    else this.#idle.push(client);
  }
}
