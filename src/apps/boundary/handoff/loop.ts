import { setTimeout as sleep } from 'node:timers/promises';
import { Code, ConnectError } from '@connectrpc/connect';
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
  /** How long to wait for facts in one go. Default 20,000. */
  readonly waitMs?: number;
  readonly retry?: { readonly minMs: number; readonly maxMs: number };
}

export class HandOff {
  readonly #stream: StreamId;
  readonly #once: HandOffOptions['once'];
  readonly #logger: Logger;
  readonly #waitMs: number;
  readonly #retry: { readonly minMs: number; readonly maxMs: number };
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #mode: HandOffMode = 'normal';
  #trouble: string | undefined;

  constructor({
    stream,
    once,
    logger,
    waitMs = 20_000,
    retry = { minMs: 200, maxMs: 30_000 },
  }: HandOffOptions) {
    this.#stream = stream;
    this.#once = once;
    this.#logger = logger;
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
        failures = 0;
        this.#enter('normal', undefined);
      } catch (error) {
        if (signal.aborted) return;
        this.#enter(modeOf(error), messageOf(error));
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
    this.#mode = mode;
    this.#trouble = trouble;
  }
}

const passing: readonly Code[] = [
  Code.Unavailable,
  Code.DeadlineExceeded,
  Code.Canceled,
  Code.Aborted,
  Code.Unknown,
];

/** A line that is cut is `Unavailable` or `Aborted`, depending on when. */
const modeOf = (error: unknown): HandOffMode =>
  error instanceof ConnectError && passing.includes(error.code) ? 'autonomous' : 'refused';
