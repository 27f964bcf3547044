import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Worker as Thread } from 'node:worker_threads';
import type pg from 'pg';
import type { Logger } from '../logger.ts';

export interface HeartbeatOptions {
  readonly connection: pg.ClientConfig;
  readonly worker: string;
  readonly leaseMs: number;
  readonly renewMs: number;
  readonly staleMs: number;
  /** A main thread that has not turned its event loop for so long is given up: leases are no longer renewed. */
  readonly blockedMs: number;
  /** The thread runs at once, but connects only after so long. */
  readonly warmUpMs: number;
}

/** What the thread says after each round. */
export type HeartbeatMessage =
  | { readonly kind: 'ready' }
  | { readonly kind: 'renewed'; readonly startedAt: number; readonly tokens: readonly string[] }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'gave-up'; readonly blockedMs: number };

const tickEveryMs = 500;

/** As text: to have a thread look for a file and load it as a module is a fifth of what it costs to start one. */
const script = readFileSync(new URL('./heartbeat-thread.cjs', import.meta.url), 'utf8');
/** A script has no place of its own to look for packages from. */
const driver = createRequire(import.meta.url).resolve('pg');

/**
 * Renews the leases from a thread with a connection of its own, so that a handler which blocks the event loop does
 * not lose them. The main thread's tick tells the thread that there is still somebody to renew for.
 */
export class Heartbeat {
  readonly #thread: Thread;
  readonly #ticker: NodeJS.Timeout;
  /** Resolves when the thread runs and has tried to connect. Claim nothing before: nobody would renew it. */
  readonly ready: Promise<void>;

  constructor(
    options: HeartbeatOptions,
    onRenewed: (tokens: ReadonlySet<string>, startedAt: number) => void,
    logger: Logger,
  ) {
    const tick = new BigInt64Array(new SharedArrayBuffer(8));
    Atomics.store(tick, 0, BigInt(Date.now()));
    this.#ticker = setInterval(() => Atomics.store(tick, 0, BigInt(Date.now())), tickEveryMs);
    this.#ticker.unref();
    this.#thread = new Thread(script, { eval: true, workerData: { ...options, tick, driver } });
    this.#thread.unref();
    let ready = (): void => {};
    this.ready = new Promise((resolve) => {
      ready = resolve;
    });
    this.#thread.on('message', (message: HeartbeatMessage) => {
      if (message.kind === 'ready') ready();
      else if (message.kind === 'renewed') onRenewed(new Set(message.tokens), message.startedAt);
      else if (message.kind === 'failed')
        logger.warn({ reason: message.reason }, 'heartbeat failed; trying again');
      else
        logger.error(
          { blockedMs: message.blockedMs },
          'the event loop was blocked for too long; leases were no longer renewed',
        );
    });
    this.#thread.on('error', (error) => {
      ready();
      logger.error({ error: error.message }, 'the heartbeat thread died; leases will run out');
    });
  }

  async stop(): Promise<void> {
    clearInterval(this.#ticker);
    await this.#thread.terminate();
  }
}
