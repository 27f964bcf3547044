import type { Socket } from 'node:net';
import type pg from 'pg';
import type { Logger } from '../logger.ts';
import { HotQuery } from './hot-query.ts';
import { ConnectionTimeoutError } from './outage.ts';

export interface WatchdogOptions {
  /** How long a statement of the hot paths, or one that opens a connection or a transaction, may make no progress. */
  readonly statementMs: number;
  readonly logger: Logger;
}

export interface WatchOptions {
  /** It can be closed while it is idle: the next user opens another. */
  readonly isDisposable: boolean;
  /** Only listens. It sends nothing by itself, so it is probed now and then. */
  readonly isListener?: boolean;
}

/** The driver's client, as far as it is needed here; its types do not tell. */
interface Driver {
  readonly connection: { readonly stream: Socket };
  readonly readyForQuery: boolean;
  readonly _ending: boolean;
  _getActiveQuery(): unknown;
}

interface Watched {
  readonly client: pg.ClientBase;
  readonly driver: Driver;
  readonly isListener: boolean;
  isDisposable: boolean;
  limitMs: number;
  /** When it was last known to be alive. */
  heardAt: number;
  isWaiting: boolean;
  waitingSince: number;
  waitedMs: number;
  bytesRead: number;
  bytesToWrite: number;
}

/** How long a connection may take to close. */
const goodbyeMs = 5_000;

/**
 * Gives up connections that wait for an answer and make no progress.
 *
 * A network can stop carrying a connection without closing it; only a deadline finds that out. A timer for each statement
 * would cost the hot paths time, so one sweep now and then looks at all connections instead: one that was waiting at the
 * last sweep, is still waiting, and has moved no byte since, has waited for that much longer. Statements themselves need no code for this.
 *
 * A sweep never counts more than its own interval. When the event loop was blocked, the answers may lie in the
 * sockets unread, and the connection is not at fault.
 */
export class Watchdog {
  readonly #options: WatchdogOptions;
  readonly #tickMs: number;
  /** A connection that only listens is probed after this long without a sign of life. */
  readonly #silentListenerMs: number;
  readonly #watched = new Map<pg.ClientBase, Watched>();
  #timer: NodeJS.Timeout | undefined;
  #sweptAt = 0;

  constructor(options: WatchdogOptions) {
    this.#options = options;
    this.#silentListenerMs = options.statementMs * 2;
    this.#tickMs = Math.min(1000, Math.max(20, options.statementMs / 10));
  }

  /** Until the connection ends. Its limit is that of the hot paths until `limit` says otherwise. */
  watch(client: pg.ClientBase, { isDisposable, isListener = false }: WatchOptions): void {
    const driver = client as unknown as Driver;
    this.#watched.set(client, {
      client,
      driver,
      isListener,
      isDisposable,
      limitMs: this.#options.statementMs,
      heardAt: performance.now(),
      isWaiting: false,
      waitingSince: 0,
      waitedMs: 0,
      bytesRead: driver.connection.stream.bytesRead,
      bytesToWrite: 0,
    });
    client.once('end', () => {
      this.#watched.delete(client);
      if (this.#watched.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    });
    if (this.#timer) return;
    this.#sweptAt = performance.now();
    this.#timer = setInterval(() => this.#sweep(), this.#tickMs);
    this.#timer.unref();
  }

  /** For the statements of this connection from now on. 0: no limit. Those of the hot paths keep their own. */
  limit(client: pg.ClientBase, limitMs: number): void {
    const watched = this.#watched.get(client);
    if (watched) watched.limitMs = limitMs || Number.POSITIVE_INFINITY;
  }

  setDisposable(client: pg.ClientBase, isDisposable: boolean): void {
    const watched = this.#watched.get(client);
    if (watched) watched.isDisposable = isDisposable;
  }

  #sweep(): void {
    const now = performance.now();
    const passedMs = Math.min(now - this.#sweptAt, this.#tickMs * 1.5);
    this.#sweptAt = now;
    let overdueSince = 0;
    for (const each of this.#watched.values()) {
      look(each, now, passedMs);
      const limitMs = this.#limitOf(each);
      if (each.isWaiting && each.waitedMs >= limitMs) {
        if (!each.driver._ending) overdueSince = Math.max(overdueSince, each.waitingSince);
        this.#giveUp(each, limitMs);
      } else if (each.isListener && !each.isWaiting && now - each.heardAt > this.#silentListenerMs) {
        each.client.query('select 1').catch(() => {});
      }
    }
    if (overdueSince > 0) this.#discardSuspects(overdueSince);
  }

  #limitOf({ driver, limitMs, isListener }: Watched): number {
    if (driver._ending) return goodbyeMs;
    return isListener || driver._getActiveQuery() instanceof HotQuery ? this.#options.statementMs : limitMs;
  }

  #giveUp({ client, driver }: Watched, limitMs: number): void {
    this.#watched.delete(client);
    if (driver._ending) return void driver.connection.stream.destroy();
    const error = new ConnectionTimeoutError(
      `PostgreSQL sent no answer for ${limitMs} ms; the connection is given up, and what became of the statement is unknown`,
    );
    this.#options.logger.warn({ limitMs }, 'a database connection gave no answer in time and was closed');
    driver.connection.stream.destroy(error);
  }

  /**
   * What silenced one connection has probably silenced those beside it. Idle ones that gave no sign of life since then
   * are closed, so that recovery takes one deadline, and not one for each. What arrived before the sweep that first saw
   * the overdue statement does not count: it may have come before the silence.
   */
  #discardSuspects(since: number): void {
    for (const { client, driver, isDisposable, isWaiting, heardAt } of this.#watched.values()) {
      if (!isDisposable || isWaiting || heardAt > since) continue;
      this.#watched.delete(client);
      driver.connection.stream.destroy(
        new ConnectionTimeoutError('closed while idle: another connection to the same server gave no answer'),
      );
    }
  }
}

function look(each: Watched, now: number, passedMs: number): void {
  const { driver } = each;
  const { bytesRead, writableLength } = driver.connection.stream;
  const hasMoved = bytesRead !== each.bytesRead || writableLength !== each.bytesToWrite;
  const wasWaiting = each.isWaiting;
  if (bytesRead !== each.bytesRead) each.heardAt = now;
  each.bytesRead = bytesRead;
  each.bytesToWrite = writableLength;
  each.isWaiting = !driver.readyForQuery || driver._ending;
  if (each.isWaiting && wasWaiting && !hasMoved) {
    each.waitedMs += passedMs;
    return;
  }
  each.waitedMs = 0;
  each.waitingSince = now;
}
