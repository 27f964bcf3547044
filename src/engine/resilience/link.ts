import { messageOf, TallymanError } from '../errors.ts';
import { type BackoffLimits, backoffMs } from './backoff.ts';
import { pause, within } from './deadline.ts';
import type { Outage } from './outage.ts';

export const defaultReconnect: BackoffLimits = { minMs: 500, maxMs: 30_000 };

/** How long one attempt to connect may take, handshake included. */
export const defaultConnectTimeoutMs = 5_000;

/** What a frozen service may cost `stop()`. */
const defaultCloseTimeoutMs = 500;

/** One open connection, ready for use. Aborting the signal it was opened with cuts its sockets. */
export interface Session {
  /** Fulfils with the reason once the connection is of no more use. */
  readonly ended: Promise<string>;
  close(): Promise<void>;
}

export type LinkState = 'connecting' | 'up' | 'waiting' | 'failed';

export type LinkStatus =
  | { readonly state: 'up' }
  | { readonly state: 'down'; readonly since: Date; readonly reason: string };

export interface LinkOptions<S extends Session> {
  /** Must let go of its sockets when the signal fires, also half-way through. */
  readonly connect: (signal: AbortSignal) => Promise<S>;
  readonly outage: Outage;
  readonly reconnect: BackoffLimits;
  readonly connectTimeoutMs: number;
  /** How long `close` of a session may take before its sockets are cut. Default 500. */
  readonly closeTimeoutMs?: number;
  /** False: a connection that is lost, or cannot be made, is not made again. Default true. */
  readonly autoReconnect?: boolean;
  /** Called on every change of state until `stop`; the reason is why the link is not up. */
  readonly onState?: (state: LinkState, reason?: string) => void;
  /** Called after each attempt, when nothing of its connection is left. */
  readonly onCleared?: () => void;
}

/**
 * Keeps one session open from `start` to `stop`. It never throws because the service is away.
 *
 *   start ──> connecting ──ok──> up ──lost──┐
 *                 │  ▲                      │
 *              failed └──── waiting <───────┘     stop: from anywhere, at once
 *                      (backoff, jitter)          failed for good: lost, and autoReconnect is off
 */
export class Link<S extends Session> {
  readonly #options: LinkOptions<S>;
  #stopping: AbortController | undefined;
  #running: Promise<void> = Promise.resolve();
  #session: S | undefined;
  #status: LinkStatus = { state: 'down', since: new Date(), reason: 'not started' };

  constructor(options: LinkOptions<S>) {
    this.#options = options;
  }

  get session(): S | undefined {
    return this.#session;
  }

  status(): LinkStatus {
    return this.#status;
  }

  /** Resolves when the first attempt has ended, well or badly. */
  async start(): Promise<void> {
    if (this.#stopping !== undefined)
      throw new TallymanError('ALREADY_STARTED', 'this has been started; stop it before starting it again');
    this.#stopping = new AbortController();
    const attempted = Promise.withResolvers<void>();
    this.#running = this.#run(this.#stopping.signal, attempted.resolve);
    await attempted.promise;
  }

  async stop(): Promise<void> {
    this.#stopping?.abort();
    await this.#running;
    this.#stopping = undefined;
  }

  async #run(stopped: AbortSignal, attempted: () => void): Promise<void> {
    const { reconnect, outage, autoReconnect = true, onState } = this.#options;
    let failures = 0;
    while (!stopped.aborted) {
      const openedAt = performance.now();
      const reason = await this.#once(stopped, attempted);
      if (stopped.aborted) break;
      this.#away(reason);
      outage.down(reason);
      onState?.(autoReconnect ? 'waiting' : 'failed', reason);
      attempted();
      if (!autoReconnect) return;
      // A line that breaks soon after each connect must not be redialled at full speed.
      if (performance.now() - openedAt > reconnect.maxMs) failures = 0;
      await pause(backoffMs(failures++, reconnect), stopped);
    }
    this.#away('stopped');
    attempted();
  }

  /** Connects, stays until the session ends or `stopped` fires, and leaves nothing open. Answers why it ended. */
  async #once(stopped: AbortSignal, attempted: () => void): Promise<string> {
    const {
      connect,
      connectTimeoutMs,
      closeTimeoutMs = defaultCloseTimeoutMs,
      outage,
      onState,
    } = this.#options;
    const line = new AbortController();
    onState?.('connecting', outage.reason);
    try {
      const session = await within(connect(line.signal), connectTimeoutMs, stopped);
      this.#session = session;
      this.#status = { state: 'up' };
      outage.up();
      onState?.('up');
      attempted();
      const reason = await Promise.race([session.ended, fired(stopped)]);
      this.#session = undefined;
      await within(session.close(), closeTimeoutMs).catch(() => {});
      return reason;
    } catch (error) {
      return messageOf(error);
    } finally {
      line.abort();
      this.#options.onCleared?.();
    }
  }

  #away(reason: string): void {
    const since = this.#status.state === 'down' && reason !== 'stopped' ? this.#status.since : new Date();
    this.#status = { state: 'down', since, reason };
  }
}

function fired(signal: AbortSignal): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  if (signal.aborted) resolve('stopped');
  else signal.addEventListener('abort', () => resolve('stopped'), { once: true });
  return promise;
}
