/**
 * What the adapters of outside services share: a line that is kept open, an outage that is
 * told once, the message that carries a hint, and how a missing package is reported.
 *
 *   start ──> connecting ──ok──> up ──line lost──┐
 *                 │  ▲                           │
 *              failed └──── backoff, jitter <────┘        stop: from anywhere, at once
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, TallymanError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import type { Hint, WakeupStatus } from './wakeup.ts';

/** The wait before attempt n is between half and all of `minMs * 2^n`, never above `maxMs`. */
export interface Reconnect {
  readonly minMs: number;
  readonly maxMs: number;
}

export const defaultReconnect: Reconnect = { minMs: 500, maxMs: 30_000 };

/** How long one attempt to connect may take, handshake included. */
export const defaultConnectTimeoutMs = 5_000;

/** What a frozen service may cost `stop()`: a polite goodbye is given this long. */
const goodbyeMs = 500;

export function backoffMs(failures: number, { minMs, maxMs }: Reconnect, random = Math.random): number {
  const full = Math.min(maxMs, minMs * 2 ** Math.min(failures, 30));
  return full / 2 + (random() * full) / 2;
}

/** Rejects after `ms`, or when `signal` fires; leaves no timer behind. */
export async function within<T>(work: Promise<T>, ms: number, signal?: AbortSignal): Promise<T> {
  const timer = new AbortController();
  const limit = signal === undefined ? timer.signal : AbortSignal.any([timer.signal, signal]);
  const late = sleep(ms, undefined, { signal: limit }).then(() => {
    throw new Error(`no answer within ${ms} ms`);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.abort();
    late.catch(ignore);
  }
}

/** One warning when a service goes away, one info line when it is back; the rest is for debug. */
export class Outage {
  readonly #logger: Logger;
  readonly #fields: object;
  readonly #messages: { readonly down: string; readonly up: string };
  #reason: string | undefined;

  constructor(logger: Logger, fields: object, messages: { readonly down: string; readonly up: string }) {
    this.#logger = logger;
    this.#fields = fields;
    this.#messages = messages;
  }

  get reason(): string | undefined {
    return this.#reason;
  }

  down(reason: string): void {
    const level = this.#reason === undefined ? 'warn' : 'debug';
    this.#reason = reason;
    this.#logger[level]({ ...this.#fields, reason }, this.#messages.down);
  }

  up(): void {
    if (this.#reason === undefined) return;
    this.#reason = undefined;
    this.#logger.info(this.#fields, this.#messages.up);
  }
}

/** One open connection, ready for use. Aborting the signal it was opened with cuts its sockets. */
export interface Session {
  /** Fulfils with the reason once the connection is of no more use. */
  readonly ended: Promise<string>;
  close(): Promise<void>;
}

export interface LinkOptions<S extends Session> {
  /** Must let go of its sockets when the signal fires, also half-way through. */
  readonly connect: (signal: AbortSignal) => Promise<S>;
  readonly outage: Outage;
  readonly reconnect: Reconnect;
  readonly connectTimeoutMs: number;
}

/** Keeps one session open for as long as it runs, and never throws for want of the service. */
export class Link<S extends Session> {
  readonly #options: LinkOptions<S>;
  #stopping: AbortController | undefined;
  #running: Promise<void> = Promise.resolve();
  #session: S | undefined;
  #status: WakeupStatus = { state: 'down', since: new Date(), reason: 'not started' };

  constructor(options: LinkOptions<S>) {
    this.#options = options;
  }

  get session(): S | undefined {
    return this.#session;
  }

  status(): WakeupStatus {
    return this.#status;
  }

  /** Resolves when the first attempt has ended, well or badly. */
  async start(): Promise<void> {
    if (this.#stopping !== undefined) {
      throw new TallymanError(
        'ALREADY_STARTED',
        'this wake-up has been started; stop it before starting it again',
      );
    }
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
    let failures = 0;
    while (!stopped.aborted) {
      const openedAt = performance.now();
      const reason = await this.#once(stopped, attempted);
      attempted();
      if (stopped.aborted) break;
      // A line that breaks soon after each connect must not be redialled at full speed.
      if (performance.now() - openedAt > this.#options.reconnect.maxMs) failures = 0;
      this.#away(reason);
      this.#options.outage.down(reason);
      const waitMs = backoffMs(failures++, this.#options.reconnect);
      await sleep(waitMs, undefined, { signal: stopped }).catch(ignore);
    }
    this.#away('stopped');
  }

  /** Connects, stays until the session ends or `stopped` fires, and leaves nothing open. Answers why it ended. */
  async #once(stopped: AbortSignal, attempted: () => void): Promise<string> {
    const line = new AbortController();
    const connecting = this.#options.connect(line.signal);
    try {
      const session = await within(connecting, this.#options.connectTimeoutMs, stopped);
      this.#session = session;
      this.#status = { state: 'up' };
      this.#options.outage.up();
      attempted();
      const reason = await Promise.race([session.ended, fired(stopped)]);
      this.#session = undefined;
      await within(session.close(), goodbyeMs).catch(ignore);
      return reason;
    } catch (error) {
      connecting.catch(ignore);
      return messageOf(error);
    } finally {
      line.abort();
    }
  }

  #away(reason: string): void {
    const since = this.#status.state === 'down' && reason !== 'stopped' ? this.#status.since : new Date();
    this.#status = { state: 'down', since, reason };
  }
}

/** More than any hint needs; what is longer is not read. */
const maxMessageBytes = 16 * 1024;

/** `job_id` is what other systems send and read; `queue` is ours. */
export function encodeHint(hint: Hint): Uint8Array {
  return Buffer.from(JSON.stringify({ job_id: hint.jobId ?? null, queue: hint.queue }));
}

/** Undefined for whatever is not a hint. `queue` null: the message did not say. */
export function decodeHint(body: Uint8Array): Hint | undefined {
  if (body.byteLength > maxMessageBytes) return undefined;
  let message: unknown;
  try {
    message = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8'));
  } catch {
    return undefined;
  }
  if (typeof message !== 'object' || message === null) return undefined;
  const { job_id: id = null, queue = null } = message as { job_id?: unknown; queue?: unknown };
  if (queue !== null && typeof queue !== 'string') return undefined;
  if (id === null) return queue === null ? undefined : { queue };
  if (typeof id === 'string') return id === '' ? undefined : { queue, jobId: id };
  if (typeof id !== 'number' || !Number.isInteger(id)) return undefined;
  // Beyond 2^53 JSON has rounded the number: it still says that there is work, but no longer which.
  return Number.isSafeInteger(id) ? { queue, jobId: String(id) } : { queue };
}

/** Hands messages to the worker: what is no hint is counted and dropped, a listener that throws is reported. */
export class Inbox {
  readonly #logger: Logger;
  readonly #fields: object;
  readonly #onHint: (hint: Hint) => void;
  #malformed = 0;

  constructor(logger: Logger, fields: object, onHint: (hint: Hint) => void) {
    this.#logger = logger;
    this.#fields = fields;
    this.#onHint = onHint;
  }

  receive(body: Uint8Array, queueIfUnsaid: string | null = null): void {
    const hint = decodeHint(body);
    if (hint === undefined) {
      this.#malformed++;
      const fields = { ...this.#fields, malformed: this.#malformed, bytes: body.byteLength };
      this.#logger.debug(fields, 'ignored a message that is no wake-up');
      return;
    }
    try {
      this.#onHint({ ...hint, queue: hint.queue ?? queueIfUnsaid });
    } catch (error) {
      this.#logger.error({ ...this.#fields, reason: messageOf(error) }, 'the listener of a wake-up threw');
    }
  }
}

/** The address of a service without what must not be logged: no user, no password, no query. */
export function addressOf(url: string): string {
  const { protocol = '', host = '', pathname = '' } = URL.canParse(url) ? new URL(url) : {};
  if (host === '') return 'an address that cannot be shown';
  // An @ in the path: part of a password that was not percent-encoded.
  return `${protocol}//${host}${pathname === '/' || pathname.includes('@') ? '' : pathname}`;
}

/** What `import()` or `require` threw, in words that say what to install. */
export function missingPackage(error: unknown, name: string, usedFor: string): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  const missing = code === 'ERR_MODULE_NOT_FOUND' || code === 'MODULE_NOT_FOUND';
  if (!missing || !messageOf(error).includes(name)) return error;
  return new TallymanError(
    'MISSING_PACKAGE',
    `${usedFor} needs the package "${name}", which is not installed: run "npm install ${name}"`,
    { cause: error, details: { package: name } },
  );
}

function fired(signal: AbortSignal): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  if (signal.aborted) resolve('stopped');
  else signal.addEventListener('abort', () => resolve('stopped'), { once: true });
  return promise;
}

function ignore(): void {}
