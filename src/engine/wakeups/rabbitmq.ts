import type { Channel, ChannelModel } from 'amqplib';
import { messageOf, TallymanError } from '../errors.ts';
import { type Logger, silentLogger } from '../logger.ts';
import type { BackoffLimits } from '../resilience/backoff.ts';
import { defaultConnectTimeoutMs, defaultReconnect, Link, type Session } from '../resilience/link.ts';
import { Outage } from '../resilience/outage.ts';
import { addressOf, missingPackage } from '../resilience/service.ts';
import { encodeHint, Inbox } from './hints.ts';
import type { Hint, Wakeup, WakeupStatus } from './wakeup.ts';

export interface RabbitmqWakeupOptions {
  /** `amqp://` or `amqps://`, with user, password and virtual host as usual. */
  readonly url: string;
  /** Used as it is found; declared as a durable topic exchange when there is none. Default `bpc`. */
  readonly exchange?: string;
  /** Default `jobs.trigger`. */
  readonly routingKey?: string;
  readonly logger?: Logger;
  readonly reconnect?: BackoffLimits;
  /** How long one attempt to connect may take. Default 5000. */
  readonly connectTimeoutMs?: number;
}

/** A hint is worth nothing once the next poll is over, and a paused process must not fill the broker. */
const keepMs = 60_000;
const keepMessages = 1_000;

/** A broker that is gone and closed nothing is noticed after about twice this. */
const heartbeatSeconds = 15;

type Amqplib = typeof import('amqplib');

interface RabbitmqSession extends Session {
  publish(hint: Hint): void;
}

/**
 * Wake-ups through RabbitMQ: each process has an exclusive queue of its own, bound to
 * `exchange` by `routingKey`, so every process hears every hint, its own too.
 *
 * @example
 * const wakeup = rabbitmqWakeup({ url: 'amqp://localhost' });
 */
export function rabbitmqWakeup(options: RabbitmqWakeupOptions): Wakeup {
  return new RabbitmqWakeup(options);
}

class RabbitmqWakeup implements Wakeup {
  readonly name = 'rabbitmq';
  readonly #url: string;
  readonly #exchange: string;
  readonly #routingKey: string;
  readonly #logger: Logger;
  readonly #fields: object;
  readonly #connectTimeoutMs: number;
  readonly #link: Link<RabbitmqSession>;
  #amqplib: Amqplib | undefined;
  #inbox: Inbox | undefined;

  constructor(options: RabbitmqWakeupOptions) {
    this.#url = withHeartbeat(options.url);
    this.#exchange = shortName('exchange', options.exchange ?? 'bpc');
    this.#routingKey = shortName('routingKey', options.routingKey ?? 'jobs.trigger');
    this.#logger = options.logger ?? silentLogger;
    this.#connectTimeoutMs = options.connectTimeoutMs ?? defaultConnectTimeoutMs;
    this.#fields = { wakeup: this.name, broker: addressOf(options.url) };
    this.#link = new Link({
      connect: (signal) => this.#connect(signal),
      outage: new Outage(this.#logger, this.#fields, {
        down: 'RabbitMQ is away: no wake-ups through it, polling goes on, reconnecting',
        up: 'RabbitMQ is back: wake-ups go through it again',
      }),
      reconnect: options.reconnect ?? defaultReconnect,
      connectTimeoutMs: this.#connectTimeoutMs,
    });
  }

  async start(onHint: (hint: Hint) => void): Promise<void> {
    this.#amqplib ??= await loadAmqplib();
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

  async #connect(signal: AbortSignal): Promise<RabbitmqSession> {
    if (this.#amqplib === undefined) throw new Error('not started');
    // `signal` is not in amqplib's types; amqplib hands these options to net.connect or tls.connect, which honour it.
    const socket = {
      signal,
      timeout: this.#connectTimeoutMs,
      keepAlive: true,
      noDelay: true,
      clientProperties: { connection_name: 'tallyman wake-ups' },
    };
    const connection = await this.#amqplib.connect(this.#url, socket);
    const ended = Promise.withResolvers<string>();
    const end = (error?: unknown): void =>
      ended.resolve(error === undefined ? 'the broker closed the connection' : messageOf(error));
    connection.on('error', end).on('close', end);

    const channel = await this.#openExchange(connection);
    channel.on('error', end).on('close', () => end());
    const { queue } = await channel.assertQueue('', {
      exclusive: true,
      autoDelete: true,
      durable: false,
      messageTtl: keepMs,
      maxLength: keepMessages,
    });
    await channel.bindQueue(queue, this.#exchange, this.#routingKey);
    // noAck: the broker takes a message as acknowledged when it is sent. A lost hint costs one poll
    // interval; a malformed one can be neither redelivered nor left unacknowledged.
    await channel.consume(
      queue,
      (message) => {
        if (message === null) end(new Error('the broker cancelled our queue'));
        else this.#inbox?.receive(message.content);
      },
      { noAck: true },
    );

    let full = false;
    channel.on('drain', () => {
      full = false;
    });
    return {
      ended: ended.promise,
      close: () => connection.close(),
      publish: (hint) => {
        // A broker that does not read (a memory alarm, a frozen process) costs hints, not our memory.
        if (full) return;
        const options = { contentType: 'application/json', persistent: false };
        full = !channel.publish(this.#exchange, this.#routingKey, Buffer.from(encodeHint(hint)), options);
      },
    };
  }

  /**
   * The exchange belongs to the program that created it first. Declaring it again with another type would be
   * refused (406), so it is only declared when it is not there: as a topic exchange, on which our
   * plain key works as on a direct one while others may listen to `jobs.#`.
   */
  async #openExchange(connection: ChannelModel): Promise<Channel> {
    const probe = await connection.createChannel();
    // The broker answers a missing exchange by closing the channel: an error event nobody else hears.
    probe.on('error', () => {});
    try {
      await probe.checkExchange(this.#exchange);
      return probe;
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 404)) throw error;
    }
    const channel = await connection.createChannel();
    channel.on('error', () => {});
    await channel.assertExchange(this.#exchange, 'topic', { durable: true });
    return channel;
  }
}

async function loadAmqplib(): Promise<Amqplib> {
  try {
    return await import('amqplib');
  } catch (error) {
    throw missingPackage(error, 'amqplib', 'the RabbitMQ wake-up');
  }
}

function withHeartbeat(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !['amqp:', 'amqps:'].includes(parsed.protocol)) {
    throw new TallymanError(
      'INVALID_OPTION',
      'rabbitmqWakeup: url must be of the form amqp://user:password@host:port/vhost',
    );
  }
  if (!parsed.searchParams.has('heartbeat')) parsed.searchParams.set('heartbeat', String(heartbeatSeconds));
  return parsed.href;
}

/** AMQP carries names in at most 255 bytes; the nameless exchange cannot be bound. */
function shortName(option: string, value: string): string {
  const bytes = Buffer.byteLength(value);
  if (bytes > 0 && bytes <= 255) return value;
  throw new TallymanError(
    'INVALID_OPTION',
    `rabbitmqWakeup: ${option} must have 1 to 255 bytes, not ${bytes}`,
  );
}
