import type { Database } from '../database/database.ts';
import { listen } from '../database/listen.ts';
import { Link, type Session } from '../resilience/link.ts';
import { Outage } from '../resilience/outage.ts';
import type { Hint, Wakeup, WakeupStatus } from './wakeup.ts';

const jobsChannel = 'tallyman_jobs';
const cancelChannel = 'tallyman_cancel';

/** LISTEN/NOTIFY on a connection of its own, which is opened again whenever it is lost. */
export class PostgresWakeup implements Wakeup {
  readonly name = 'postgres';
  readonly #database: Database;
  readonly #link: Link<Session>;
  readonly #onCancel: (jobId: string, pos: string) => void;
  #onHint: (hint: Hint) => void = () => {};

  constructor(database: Database, onCancel: (jobId: string, pos: string) => void = () => {}) {
    this.#database = database;
    this.#onCancel = onCancel;
    this.#link = new Link({
      connect: (signal) => this.#listen(signal),
      outage: new Outage(
        database.logger,
        {},
        { down: 'wake-ups by LISTEN are lost; polling goes on', up: 'wake-ups by LISTEN are back' },
      ),
      // Quicker than for brokers: without this connection every job of another process waits for a poll.
      reconnect: { minMs: 200, maxMs: 10_000 },
      connectTimeoutMs: 10_000,
    });
  }

  async start(onHint: (hint: Hint) => void): Promise<void> {
    this.#onHint = onHint;
    await this.#link.start();
  }

  async #listen(signal: AbortSignal): Promise<Session> {
    const session = await listen(
      this.#database,
      {
        applicationName: 'tallyman wake-ups',
        channels: [jobsChannel, cancelChannel],
        onNotification: ({ channel, payload }) => {
          const [id = '', pos = ''] = (payload ?? '').split(' ');
          if (channel === cancelChannel) this.#onCancel(id, pos);
          else this.#onHint({ queue: payload || null });
        },
      },
      signal,
    );
    // What was notified while nobody listened is unknown.
    this.#onHint({ queue: null });
    return session;
  }

  async publish(hint: Hint): Promise<void> {
    await this.#database.query('select pg_notify($1, $2)', [jobsChannel, hint.queue ?? '']).catch(() => {});
  }

  status(): WakeupStatus {
    return this.#link.status();
  }

  stop(): Promise<void> {
    return this.#link.stop();
  }
}
