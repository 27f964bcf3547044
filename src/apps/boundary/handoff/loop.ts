import { setTimeout as sleep } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
import { isOutage } from '../../../engine/database/database.ts';
import { messageOf } from '../../../engine/errors.ts';
import type { Logger } from '../../../engine/logger.ts';
import { backoffMs } from '../../../engine/resilience/backoff.ts';
import { streamName } from '../domain/delivery.ts';
import type { StreamId } from '../store/store.ts';

/**
 * Carries a stream until it is stopped.
 *
 *   normal       the other zone answers
 *   autonomous   it cannot be reached: facts gather here, and cross when it answers again
 *   refused      it answers, and does not take what comes next: somebody must look
 */
export type HandOffMode = 'normal' | 'autonomous' | 'refused';

export interface HandOffOptions {
  readonly stream: StreamId;
  /** `pushOnce` or `pullOnce`. */
  readonly once: (waitMs: number, signal: AbortSignal) => Promise<number>;
  readonly logger: Logger;
  /** Hears of the mode after the first step, and whenever it or the trouble changes. */
  readonly onMode?: (mode: HandOffMode, trouble: string | undefined) => void;
  /** How long to wait for facts in one go. Default 20,000. */
  readonly waitMs?: number;
  readonly retry?: { readonly minMs: number; readonly maxMs: number };
}

export class HandOff {
  readonly #stream: StreamId;
  readonly #once: HandOffOptions['once'];
  readonly #logger: Logger;
  readonly #onMode: HandOffOptions['onMode'];
  readonly #waitMs: number;
  readonly #retry: { readonly minMs: number; readonly maxMs: number };
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #mode: HandOffMode = 'normal';
  #trouble: string | undefined;
  #isKnown = false;

  constructor({
    stream,
    once,
    logger,
    onMode,
    waitMs = 20_000,
    retry = { minMs: 200, maxMs: 30_000 },
  }: HandOffOptions) {
    this.#stream = stream;
    this.#once = once;
    this.#logger = logger;
    this.#onMode = onMode;
    this.#waitMs = waitMs;
    this.#retry = retry;
  }

  get mode(): HandOffMode {
    return this.#mode;
  }

  /** Why it is not in mode normal. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted; ) {
      try {
        await this.#once(this.#waitMs, signal);
        // A step that was ended early tells nothing.
        if (signal.aborted) return;
        failures = 0;
        this.#enter('normal', undefined);
      } catch (error) {
        if (signal.aborted) return;
        // Trouble with our own database tells nothing about the other zone.
        if (error instanceof ConnectError || !isOutage(error)) this.#enter(modeOf(error), messageOf(error));
        await sleep(backoffMs(failures, this.#retry), undefined, { signal }).catch(() => {});
        failures += 1;
      }
    }
  }

  #enter(mode: HandOffMode, trouble: string | undefined): void {
    if (mode !== this.#mode) {
      const told = { stream: streamName(this.#stream), mode, ...(trouble && { trouble }) };
      if (mode === 'normal') this.#logger.info(told, 'facts cross again');
      else this.#logger.warn(told, 'facts do not cross');
    }
    const isNews = !this.#isKnown || mode !== this.#mode || trouble !== this.#trouble;
    this.#isKnown = true;
    this.#mode = mode;
    this.#trouble = trouble;
    if (isNews) this.#onMode?.(mode, trouble);
  }
}

const passing: readonly Code[] = [
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.Aborted,
  Code.Unknown,
];

/** What the system says when there is no way to the other side; the transport has a code of its own for some of them only. */
const unreachable = /^(EHOSTUNREACH|ENETUNREACH|EHOSTDOWN|ENETDOWN|EPIPE|ECONNABORTED|ERR_HTTP2_.*)$/;

/** A line that is cut is `Unavailable` or `Aborted`, depending on when. */
function modeOf(error: unknown): HandOffMode {
  if (!(error instanceof ConnectError)) return 'refused';
  if (passing.includes(error.code)) return 'autonomous';
  const code = (error.cause as { readonly code?: unknown } | undefined)?.code;
  return typeof code === 'string' && unreachable.test(code) ? 'autonomous' : 'refused';
}
