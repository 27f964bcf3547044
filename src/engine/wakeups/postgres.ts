import type pg from 'pg';
import type { Database } from '../database/database.ts';
import { messageOf } from '../errors.ts';
import type { Hint, Wakeup, WakeupStatus } from './wakeup.ts';

const jobsChannel = 'tallyman_jobs';
const cancelChannel = 'tallyman_cancel';

/** LISTEN/NOTIFY on a connection of its own, which is opened again whenever it is lost. */
export class PostgresWakeup implements Wakeup {
  readonly name = 'postgres';
  readonly #database: Database;
  readonly #onCancel: (jobId: string, pos: string) => void;
  #onHint: (hint: Hint) => void = () => {};
  #client: pg.Client | undefined;
  #status: WakeupStatus = { state: 'down', since: new Date(), reason: 'not started' };
  #stopped = false;
  #retry: NodeJS.Timeout | undefined;
  #failures = 0;

  constructor(database: Database, onCancel: (jobId: string, pos: string) => void = () => {}) {
    this.#database = database;
    this.#onCancel = onCancel;
  }

  async start(onHint: (hint: Hint) => void): Promise<void> {
    this.#onHint = onHint;
    await this.#connect();
  }

  async #connect(): Promise<void> {
    try {
      const client = await this.#database.dedicated('tallyman wake-ups', { isListener: true });
      client.on('notification', ({ channel, payload }) => {
        const [id = '', pos = ''] = (payload ?? '').split(' ');
        if (channel === cancelChannel) this.#onCancel(id, pos);
        else this.#onHint({ queue: payload || null });
      });
      client.once('end', () => this.#lost('connection closed'));
      await client.query(`listen ${jobsChannel}; listen ${cancelChannel}`);
      if (this.#stopped) return void client.end();
      this.#client = client;
      this.#status = { state: 'up' };
      if (this.#failures > 0) this.#database.logger.info({}, 'wake-ups by LISTEN are back');
      this.#failures = 0;
      // What was notified while nobody listened is unknown.
      this.#onHint({ queue: null });
    } catch (error) {
      this.#lost(messageOf(error));
    }
  }

  #lost(reason: string): void {
    if (this.#stopped || this.#retry) return;
    this.#client = undefined;
    if (this.#failures === 0) {
      this.#status = { state: 'down', since: new Date(), reason };
      this.#database.logger.warn({ reason }, 'wake-ups by LISTEN are lost; polling goes on');
    }
    this.#failures += 1;
    const delay = Math.min(10_000, 100 * 2 ** this.#failures) * (0.5 + Math.random() / 2);
    this.#retry = setTimeout(() => {
      this.#retry = undefined;
      void this.#connect();
    }, delay);
  }

  async publish(hint: Hint): Promise<void> {
    await this.#database.query('select pg_notify($1, $2)', [jobsChannel, hint.queue ?? '']).catch(() => {});
  }

  status(): WakeupStatus {
    return this.#status;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#retry);
    await this.#client?.end().catch(() => {});
  }
}
