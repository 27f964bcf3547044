import { createHash } from 'node:crypto';
import type { NatsConnection } from '@nats-io/transport-node';
import { messageOf, TallymanError } from '../errors.ts';
import { type Logger, silentLogger } from '../logger.ts';
import type { BackoffLimits } from '../resilience/backoff.ts';
import { defaultConnectTimeoutMs, defaultReconnect, Link, type Session } from '../resilience/link.ts';
import { cutOnAbort, type NatsServers, readNatsServers } from '../resilience/nats.ts';
import { Outage } from '../resilience/outage.ts';
import { addressOf, missingPackage } from '../resilience/service.ts';
import { encodeHint, Inbox } from './hints.ts';
import type { Hint, Wakeup, WakeupStatus } from './wakeup.ts';

export interface NatsWakeupOptions {
  /** `nats://host:port`, `tls://host:port` or `host:port`, one or more; `user:password@` or `token@` may go before the host. */
  readonly servers: string | readonly string[];
  /** Hints of a queue go to `<subjectPrefix>.<queue>`. Default `tallyman.jobs`. */
  readonly subjectPrefix?: string;
  readonly user?: string;
  readonly password?: string;
  readonly token?: string;
  /** Asks for TLS; names the certificates where the system's own do not do. */
  readonly tls?: { readonly caFile?: string; readonly certFile?: string; readonly keyFile?: string };
  readonly logger?: Logger;
  readonly reconnect?: BackoffLimits;
  /** How long one attempt to connect may take, over all servers. Default 5000. */
  readonly connectTimeoutMs?: number;
}

/** A server that is gone and closed nothing is noticed after two or three of these. */
const pingIntervalMs = 10_000;

/** A longer name would near the server's limit for a line (4096), which ends the connection. */
const maxTokenLength = 512;

type Transport = typeof import('@nats-io/transport-node');

interface NatsSession extends Session {
  publish(hint: Hint): void;
}

/**
 * Wake-ups through NATS, one subject a queue. Every process hears every hint, its own too.
 *
 * @example
 * const wakeup = natsWakeup({ servers: 'nats://localhost:4222' });
 */
export function natsWakeup(options: NatsWakeupOptions): Wakeup {
  return new NatsWakeup(options);
}

class NatsWakeup implements Wakeup {
  readonly name = 'nats';
  readonly #options: NatsWakeupOptions;
  readonly #servers: NatsServers;
  readonly #prefix: string;
  readonly #logger: Logger;
  readonly #fields: object;
  readonly #connectTimeoutMs: number;
  readonly #link: Link<NatsSession>;
  #transport: Transport | undefined;
  #inbox: Inbox | undefined;

  constructor(options: NatsWakeupOptions) {
    this.#options = options;
    this.#servers = readNatsServers(options.servers, 'natsWakeup: servers');
    this.#prefix = checkPrefix(options.subjectPrefix ?? 'tallyman.jobs');
    this.#logger = options.logger ?? silentLogger;
    this.#connectTimeoutMs = options.connectTimeoutMs ?? defaultConnectTimeoutMs;
    this.#fields = { wakeup: this.name, broker: this.#servers.addresses.map(addressOf).join(', ') };
    this.#link = new Link({
      connect: (signal) => this.#connect(signal),
      outage: new Outage(this.#logger, this.#fields, {
        down: 'NATS is away: no wake-ups through it, polling goes on, reconnecting',
        up: 'NATS is back: wake-ups go through it again',
      }),
      reconnect: options.reconnect ?? defaultReconnect,
      connectTimeoutMs: this.#connectTimeoutMs,
    });
  }

  async start(onHint: (hint: Hint) => void): Promise<void> {
    this.#transport ??= await loadTransport();
    this.#inbox = new Inbox(this.#logger, this.#fields, onHint);
    await this.#link.start();
  }

  async publish(hint: Hint): Promise<void> {
    try {
      this.#link.session?.publish(hint);
    } catch (error) {
      this.#logger.debug({ ...this.#fields, reason: messageOf(error) }, 'dropped a wake-up');
    }
  }

  status(): WakeupStatus {
    return this.#link.status();
  }

  stop(): Promise<void> {
    return this.#link.stop();
  }

  async #connect(signal: AbortSignal): Promise<NatsSession> {
    const connection = await cutOnAbort(signal, () => this.#dial());
    const ended = Promise.withResolvers<string>();
    const end = (error: unknown): void =>
      ended.resolve(error instanceof Error ? messageOf(error) : 'the server closed the connection');
    connection.closed().then(end);

    connection.subscribe(`${this.#prefix}.>`, {
      callback: (error, message) => {
        if (error !== null) end(error);
        else this.#inbox?.receive(message.data, queueOf(message.subject.slice(this.#prefix.length + 1)));
      },
    });
    // The answer says that the server has seen the subscription: from here on no hint is missed.
    await connection.flush();
    return {
      ended: ended.promise,
      close: () => connection.close(),
      publish: (hint) => connection.publish(`${this.#prefix}.${tokenOf(hint.queue)}`, encodeHint(hint)),
    };
  }

  #dial(): Promise<NatsConnection> {
    if (this.#transport === undefined) throw new Error('not started');
    const { user = this.#servers.user, password = this.#servers.password } = this.#options;
    const { token = this.#servers.token, tls = this.#servers.tls ? {} : undefined } = this.#options;
    return this.#transport.connect({
      servers: [...this.#servers.addresses],
      name: 'tallyman wake-ups',
      // The link redials, the same way for every broker; the client's own redialling would also
      // keep hints in memory for as long as the server is away.
      reconnect: false,
      timeout: this.#connectTimeoutMs,
      pingInterval: pingIntervalMs,
      maxPingOut: 2,
      ...(user !== undefined && { user }),
      ...(password !== undefined && { pass: password }),
      ...(token !== undefined && { token }),
      ...(tls !== undefined && { tls }),
    });
  }
}

/**
 * The subject token of a queue. Letters, digits, `_` and `-` stand for themselves, every other UTF-16 unit is
 * `=` and four hex digits, so that no two queues share a token; `=` alone: no queue; `==`: the nameless one.
 */
export function tokenOf(queue: string | null): string {
  if (queue === null) return '=';
  if (queue === '') return '==';
  const token = queue.replace(
    /[^A-Za-z0-9_-]/g,
    (unit) => `=${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return token.length <= maxTokenLength ? token : `=x${createHash('sha256').update(token).digest('hex')}`;
}

/** The queue a token stands for; null where it names none (then only the message can tell). */
export function queueOf(token: string): string | null {
  if (token === '==') return '';
  if (!/^(?:[A-Za-z0-9_-]|=[0-9a-f]{4})+$/.test(token)) return null;
  return token.replace(/=([0-9a-f]{4})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

async function loadTransport(): Promise<Transport> {
  try {
    return await import('@nats-io/transport-node');
  } catch (error) {
    throw missingPackage(error, '@nats-io/transport-node', 'the NATS wake-up');
  }
}

function checkPrefix(prefix: string): string {
  if (/^[^\s.*>]+(?:\.[^\s.*>]+)*$/.test(prefix)) return prefix;
  throw new TallymanError(
    'INVALID_OPTION',
    `natsWakeup: subjectPrefix must be words joined by dots, without spaces, * or >, not "${prefix}"`,
  );
}
