import type { Database } from '../../engine/database/database.ts';
import { messageOf } from '../../engine/errors.ts';
import { pause } from '../../engine/resilience/deadline.ts';
import type { EventObserver } from './metrics.ts';

export interface EventWatchOptions {
  readonly database: Pick<Database, 'query' | 'logger'>;
  readonly observer: EventObserver;
  /** Default 5000. */
  readonly intervalMs?: number;
  /** Warns once a transaction has held up events for so long. Default 30 s. */
  readonly warnAfterMs?: number;
}

/** Looks from time to time how events get on: for metrics, and to name the transaction that everybody waits for. */
export class EventWatch {
  readonly #options: EventWatchOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #warnedOf: number | undefined;

  constructor(options: EventWatchOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(stopping: AbortSignal): Promise<void> {
    const { database, intervalMs = 5000 } = this.#options;
    while (!stopping.aborted) {
      await this.look().catch((error) =>
        database.logger.debug({ error: messageOf(error) }, 'could not look how events get on'),
      );
      await pause(intervalMs, stopping);
    }
  }

  async look(): Promise<void> {
    const { database, observer } = this.#options;
    const [{ rows: horizon }, { rows: listeners }, { rows: held }] = await Promise.all([
      database.query<{ seconds: number; pid: number; application: string | null }>(
        'select * from tallyman_events.horizon_age()',
      ),
      database.query<{ listener: string; seconds: number; setAside: string }>(
        'select listener, seconds, set_aside as "setAside" from tallyman_events.lag()',
      ),
      database.query<{ count: string }>('select count(*) from tallyman_webhooks.held_back'),
    ]);
    const [oldest] = horizon;
    observer.saw({
      horizonAgeSeconds: oldest?.seconds ?? 0,
      listeners: listeners.map((each) => ({ ...each, setAside: Number(each.setAside) })),
      heldBack: Number(held[0]?.count ?? 0),
    });
    this.#warn(oldest);
  }

  #warn(oldest: { seconds: number; pid: number; application: string | null } | undefined): void {
    const { database, warnAfterMs = 30_000 } = this.#options;
    if (oldest === undefined || oldest.seconds * 1000 < warnAfterMs) {
      this.#warnedOf = undefined;
      return;
    }
    if (this.#warnedOf === oldest.pid) return;
    this.#warnedOf = oldest.pid;
    database.logger.warn(
      { pid: oldest.pid, application: oldest.application, seconds: Math.round(oldest.seconds) },
      'a transaction that emitted events stays open: events written since then wait for it, those of all tenants',
    );
  }
}
