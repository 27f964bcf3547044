import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Worker as Thread } from 'node:worker_threads';
import type { ThreadConnection } from '../database/database.ts';
import type { Value } from '../database/hot-query.ts';
import type { Logger } from '../logger.ts';
import { presentFunction } from '../sql/present.ts';
import { renew as renewOf } from '../sql/renew.ts';

export interface HeartbeatOptions {
  readonly connection: ThreadConnection;
  readonly worker: string;
  readonly leaseMs: number;
  readonly renewMs: number;
  readonly staleMs: number;
  /** If the main thread's event loop is blocked for longer than this, leases are no longer renewed. */
  readonly blockedMs: number;
  /** The thread starts at once, but connects after this delay. */
  readonly warmUpMs: number;
  /** Its session holds the lock that tells others that the worker lives; see `tallyman.present`. */
  readonly isPresent: boolean;
}

/** The options of the thread. It loads no modules, so the statements that it sends are ready. */
export interface ThreadOptions
  extends Omit<HeartbeatOptions, 'worker' | 'leaseMs' | 'staleMs' | 'isPresent'> {
  readonly tick: BigInt64Array;
  readonly driver: string;
  /** Marks the worker as present; undefined: not used. */
  readonly present: ThreadStatement | undefined;
  readonly renew: ThreadStatement;
}

interface ThreadStatement {
  readonly text: string;
  readonly values: readonly Value[];
}

/** The thread's report after each round. */
export type HeartbeatMessage =
  | { readonly kind: 'ready' }
  | { readonly kind: 'renewed'; readonly startedAt: number; readonly tokens: readonly string[] }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'gave-up'; readonly blockedMs: number };

const tickEveryMs = 500;
/** It tries several times a second; an outage is logged this often. */
const tellEveryMs = 10_000;

/** As text: looking up and loading a module file is a fifth of the cost of starting a thread. */
const script = readFileSync(new URL('./heartbeat-thread.cjs', import.meta.url), 'utf8');
/** A script from text has no path of its own for resolving packages. */
const driver = createRequire(import.meta.url).resolve('pg');

function toThread(options: HeartbeatOptions, tick: BigInt64Array): ThreadOptions {
  const { worker, leaseMs, staleMs, isPresent, ...more } = options;
  const present = { text: presentFunction.statement.text, values: presentFunction.values({ worker }) };
  const renew = renewOf({ worker, leaseMs, staleMs });
  return { ...more, tick, driver, present: isPresent ? present : undefined, renew };
}

/**
 * Renews the leases from a thread with a connection of its own, so that a handler which blocks the event loop does
 * not lose them. The main thread's tick tells the thread that the worker still runs.
 */
export class Heartbeat {
  readonly #thread: Thread;
  readonly #ticker: NodeJS.Timeout;
  #toldAt = Number.NEGATIVE_INFINITY;
  /** Resolves when the thread runs and has tried to connect. Claim nothing before: it would not be renewed. */
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
    this.#thread = new Thread(script, { eval: true, workerData: toThread(options, tick) });
    this.#thread.unref();
    let ready = (): void => {};
    this.ready = new Promise((resolve) => {
      ready = resolve;
    });
    this.#thread.on('message', (message: HeartbeatMessage) => {
      if (message.kind === 'ready') ready();
      else if (message.kind === 'renewed') {
        this.#toldAt = Number.NEGATIVE_INFINITY;
        onRenewed(new Set(message.tokens), message.startedAt);
      } else if (message.kind === 'failed') this.#failed(message.reason, logger);
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

  #failed(reason: string, logger: Logger): void {
    if (performance.now() - this.#toldAt < tellEveryMs) return;
    this.#toldAt = performance.now();
    logger.warn({ reason }, 'heartbeat failed; trying again');
  }

  async stop(): Promise<void> {
    clearInterval(this.#ticker);
    await this.#thread.terminate();
  }
}
