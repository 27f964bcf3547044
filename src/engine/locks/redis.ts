import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import type { ChainableCommander, Redis } from 'ioredis';
import { messageOf, TallymanError } from '../errors.ts';
import { type Logger, silentLogger } from '../logger.ts';
import { backoffMs } from '../resilience/backoff.ts';
import { within } from '../resilience/deadline.ts';
import { Outage } from '../resilience/outage.ts';
import { addressOf, missingPackage } from '../resilience/service.ts';
import type { LaneGrant, LaneLock } from './lane-lock.ts';

export interface RedisLaneLockOptions {
  /** `redis://` or `rediss://`, one server (not a cluster: a batch of keys goes to one place). */
  readonly url: string;
  /** Goes before every key. Default `tallyman:lane:`. */
  readonly prefix?: string;
  /** How long Redis may take before we continue without it. Default 250. */
  readonly timeoutMs?: number;
  readonly logger?: Logger;
}

/** Extends the keys that still hold our token; answers 1 for each of those, else 0. */
const renewScript = `
local mine = {}
for i, key in ipairs(KEYS) do
  mine[i] = 0
  if redis.call('GET', key) == ARGV[1] then
    mine[i] = redis.call('PEXPIRE', key, ARGV[2])
  end
end
return mine`;

const releaseScript = `
local freed = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    freed = freed + redis.call('DEL', key)
  end
end
return freed`;

/** A script blocks the server while it runs; this many keys take it well under a millisecond. */
const keysPerScript = 500;

/** Bounds the memory for an outage; keys beyond it are freed by their time to live. */
const rememberedKeys = 10_000;

const reconnect = { minMs: 100, maxMs: 2_000 };

/** After this many timeouts without an answer, the connection is made again. */
const silentTimeouts = 8;

/**
 * Lane holders in Redis: `SET NX PX` with a token that is random per instance, renewed and released
 * only while the key still holds it.
 *
 * Without Redis (down, slow, erring) every lane is granted: the claim in Postgres keeps order. Nothing
 * here throws or waits longer than `timeoutMs`.
 *
 * @example
 * const lock = redisLaneLock({ url: 'redis://localhost:6379' });
 */
export function redisLaneLock(options: RedisLaneLockOptions): LaneLock {
  return new RedisLaneLock(options);
}

class RedisLaneLock implements LaneLock {
  readonly name = 'redis';
  readonly #prefix: string;
  readonly #timeoutMs: number;
  readonly #token = randomUUID();
  readonly #outage: Outage;
  readonly #redis: Redis;
  readonly #firstAttempt: Promise<void>;
  /** Granted while Redis was down: the server does not know of them yet. */
  readonly #onTrust = new Set<string>();
  /** Released while Redis was down: without this they would stay taken until they expire. */
  readonly #owed = new Set<string>();
  #unanswered = 0;
  #lastError: string | undefined;
  #stopped = false;

  constructor(options: RedisLaneLockOptions) {
    if (!URL.canParse(options.url) || !['redis:', 'rediss:'].includes(new URL(options.url).protocol)) {
      throw new TallymanError(
        'INVALID_OPTION',
        'redisLaneLock: url must be of the form redis://user:password@host:port/db',
      );
    }
    this.#prefix = options.prefix ?? 'tallyman:lane:';
    this.#timeoutMs = options.timeoutMs ?? 250;
    this.#outage = new Outage(
      options.logger ?? silentLogger,
      { lock: this.name, server: addressOf(options.url) },
      {
        down: 'Redis is away: lanes are granted without it, Postgres alone keeps their order',
        up: 'Redis is back: lanes are locked in it again',
      },
    );
    this.#redis = this.#open(options.url);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#firstAttempt = promise;
    this.#redis
      .once('ready', resolve)
      .once('close', resolve)
      .on('ready', () => this.#payOwed());
    // Reported when a command needs the connection, once; ioredis prints errors that nobody listens to.
    this.#redis.on('error', (error: unknown) => {
      this.#lastError = messageOf(error);
    });
  }

  async acquire(keys: readonly string[], ttlMs: number): Promise<LaneGrant> {
    const wanted = [...new Set(keys)];
    for (const key of wanted) this.#owed.delete(key);
    const held = await this.#ask(wanted, () => this.#take(wanted, ttlMs));
    if (held === undefined) {
      for (const key of wanted) remember(this.#onTrust, key);
      return { granted: wanted, refused: [] };
    }
    for (const key of wanted) this.#onTrust.delete(key);
    return {
      granted: wanted.filter((key) => held.has(key)),
      refused: wanted.filter((key) => !held.has(key)),
    };
  }

  async renew(keys: readonly string[], ttlMs: number): Promise<readonly string[]> {
    const wanted = [...new Set(keys)];
    const held = await this.#ask(wanted, async () => {
      const extended = await this.#extend(wanted, ttlMs);
      // A lock that was granted during an outage is not lost because Redis does not know it.
      const unknown = wanted.filter((key) => !extended.has(key) && this.#onTrust.has(key));
      return unknown.length === 0 ? extended : new Set([...extended, ...(await this.#take(unknown, ttlMs))]);
    });
    if (held === undefined) return [];
    for (const key of wanted) this.#onTrust.delete(key);
    return wanted.filter((key) => !held.has(key));
  }

  async release(keys: readonly string[]): Promise<void> {
    const wanted = [...new Set(keys)];
    for (const key of wanted) this.#onTrust.delete(key);
    const answered = await this.#ask(wanted, () => this.#free(wanted));
    if (answered === undefined && !this.#stopped) for (const key of wanted) remember(this.#owed, key);
  }

  get trouble(): string | undefined {
    return this.#outage.reason;
  }

  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    const ended = new Promise<void>((resolve) => this.#redis.once('end', () => resolve()));
    const idle = this.#redis.status === 'end' || this.#redis.status === 'reconnecting';
    this.#redis.disconnect();
    if (!idle) await within(ended, 1_000).catch(() => {});
  }

  #open(url: string): Redis {
    const { Redis } = loadIoredis();
    return new Redis(url, {
      connectionName: 'tallyman-lanes',
      // A command is sent now or not at all: none waits for a connection, none is sent twice.
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      retryStrategy: (attempt) => backoffMs(attempt - 1, reconnect),
      // After a failover the old master answers READONLY: look for the new one behind the address.
      reconnectOnError: (error) => error.message.startsWith('READONLY'),
      connectTimeout: 2_000,
      disconnectTimeout: 100,
      socketTimeout: this.#timeoutMs * silentTimeouts,
    });
  }

  /** Takes keys that are free or already ours; returns the keys that are ours now. */
  async #take(keys: readonly string[], ttlMs: number): Promise<Set<string>> {
    const pipeline = this.#redis.pipeline();
    for (const key of keys) pipeline.set(this.#prefix + key, this.#token, 'PX', whole(ttlMs), 'NX');
    const replies = await run(pipeline);
    const mine = new Set(keys.filter((_, i) => replies[i] === 'OK'));
    const taken = keys.filter((key) => !mine.has(key));
    return taken.length === 0 ? mine : new Set([...mine, ...(await this.#extend(taken, ttlMs))]);
  }

  async #extend(keys: readonly string[], ttlMs: number): Promise<Set<string>> {
    const replies = await this.#script(renewScript, keys, whole(ttlMs));
    const flags = replies.flat();
    return new Set(keys.filter((_, i) => flags[i] === 1));
  }

  async #free(keys: readonly string[]): Promise<true> {
    await this.#script(releaseScript, keys);
    return true;
  }

  /** EVAL, not EVALSHA: a few hundred bytes more, but it also works if the server has lost the script. */
  #script(script: string, keys: readonly string[], ...args: number[]): Promise<unknown[]> {
    const pipeline = this.#redis.pipeline();
    for (let at = 0; at < keys.length; at += keysPerScript) {
      const batch = keys.slice(at, at + keysPerScript).map((key) => this.#prefix + key);
      pipeline.eval(script, batch.length, ...batch, this.#token, ...args);
    }
    return run(pipeline);
  }

  /** The answer of `work`, or undefined when Redis has none in time. */
  async #ask<T>(keys: readonly string[], work: () => Promise<T>): Promise<T | undefined> {
    if (keys.length === 0 || this.#stopped) return undefined;
    let answered = false;
    const asking = this.#send(work).finally(() => {
      answered = true;
    });
    try {
      const answer = await within(asking, this.#timeoutMs);
      this.#outage.up();
      this.#payOwed();
      return answer;
    } catch (error) {
      if (!this.#stopped) this.#outage.down(messageOf(error));
      if (!answered) this.#awaitLateAnswer(asking);
      return undefined;
    }
  }

  async #send<T>(work: () => Promise<T>): Promise<T> {
    // Send nothing more to a server that has not answered yet: commands for a frozen one would fill our memory.
    if (this.#unanswered > 0) throw new Error(`no answer within ${this.#timeoutMs} ms`);
    if (this.#outage.reason === undefined) await this.#firstAttempt;
    if (this.#redis.status !== 'ready') throw new Error(this.#lastError ?? 'not connected');
    return work();
  }

  /** Ends for certain: the socket timeout fails what a silent server never answers. */
  #awaitLateAnswer(asking: Promise<unknown>): void {
    this.#unanswered++;
    const settled = (): void => {
      this.#unanswered--;
      this.#payOwed();
    };
    asking.then(settled, settled);
  }

  #payOwed(): void {
    if (this.#owed.size === 0 || this.#stopped || this.#unanswered > 0 || this.#redis.status !== 'ready')
      return;
    const keys = [...this.#owed];
    this.#owed.clear();
    this.#free(keys).catch(() => {});
  }
}

/** All the replies, or the first error among them. */
async function run(pipeline: ChainableCommander): Promise<unknown[]> {
  const results = (await pipeline.exec()) ?? [];
  return results.map(([error, reply]) => {
    if (error !== null && error !== undefined) throw error;
    return reply;
  });
}

function remember(keys: Set<string>, key: string): void {
  if (keys.size < rememberedKeys) keys.add(key);
}

function whole(ttlMs: number): number {
  return Math.max(1, Math.ceil(ttlMs));
}

/** `require`, since a lock has no start() that could wait: a missing package is reported when the lock is made. */
function loadIoredis(): typeof import('ioredis') {
  try {
    return createRequire(import.meta.url)('ioredis');
  } catch (error) {
    throw missingPackage(error, 'ioredis', 'the Redis lane lock');
  }
}
