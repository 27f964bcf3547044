/** Sends to a broker at QoS 2, a few messages at a time, in their order. */
import { randomBytes } from 'node:crypto';
import type { MqttClient } from 'mqtt';
import { describe } from '../engine/database/database.ts';
import { messageOf, TallymanError } from '../engine/errors.ts';
import { type Logger, silentLogger } from '../engine/logger.ts';
import { endsWithin } from '../engine/resilience/deadline.ts';
import { Outage } from '../engine/resilience/outage.ts';

/** MQTT.js heeds no receive maximum; a broker drops what is beyond its own, and the smallest usual one is 20. */
const defaultInFlight = 15;
const connectTimeoutMs = 8000;
/** The broker keeps our half of a handshake for this long when the line breaks. */
const sessionExpirySeconds = 120;

export interface PublisherOptions {
  readonly logger?: Logger;
  /** Messages that are sent and not acknowledged, at most. Default 15. */
  readonly mostInFlight?: number | undefined;
}

export class Publisher {
  readonly #client: MqttClient;
  readonly #mostInFlight: number;
  readonly #underWay = new Set<Promise<void>>();
  acknowledged = 0;

  static async connect(url: string, options: PublisherOptions = {}): Promise<Publisher> {
    const { default: mqtt } = await import('mqtt');
    const common = {
      clientId: `tallyman-readers-${randomBytes(6).toString('hex')}`,
      clean: false,
      reconnectPeriod: 500,
      connectTimeout: connectTimeoutMs,
    };
    const dial = (protocolVersion: 4 | 5): Promise<MqttClient> =>
      mqtt.connectAsync(
        url,
        {
          ...common,
          protocolVersion,
          ...(protocolVersion === 5 && { properties: { sessionExpiryInterval: sessionExpirySeconds } }),
        },
        // A first connect that fails is told, not tried for ever.
        false,
      );
    try {
      // Brokers that know only 3.1.1 refuse 5 in words, or by hanging up.
      const client = await dial(5).catch((error) => (isDown(error) ? Promise.reject(error) : dial(4)));
      return new Publisher(client, url, options);
    } catch (error) {
      throw new TallymanError(
        'BROKER_UNREACHABLE',
        `The MQTT broker at ${describe(url)} cannot be used: ${reasonOf(error)}`,
        { cause: error },
      );
    }
  }

  private constructor(client: MqttClient, url: string, options: PublisherOptions) {
    const { logger = silentLogger, mostInFlight = defaultInFlight } = options;
    this.#client = client;
    this.#mostInFlight = mostInFlight;
    const outage = new Outage(
      logger,
      { broker: describe(url) },
      { down: 'the simulated readers lost the broker; trying again', up: 'the simulated readers are back' },
    );
    let reason = 'connection closed';
    client.on('error', (error) => {
      reason = messageOf(error);
    });
    client.on('close', () => {
      if (!client.disconnecting) outage.down(reason);
    });
    client.on('connect', () => outage.up());
  }

  /** Resolves when there is room; `onAcknowledged` follows when the broker has taken the message over. */
  async send(topic: string, payload: string, onAcknowledged?: () => void): Promise<void> {
    while (this.#underWay.size >= this.#mostInFlight) await Promise.race(this.#underWay);
    const sending = this.#client.publishAsync(topic, payload, { qos: 2 }).then(
      () => {
        this.acknowledged += 1;
        onAcknowledged?.();
      },
      // It stays unacknowledged, and the books say so.
      () => {},
    );
    this.#underWay.add(sending);
    void sending.finally(() => this.#underWay.delete(sending));
  }

  /** True when everything is acknowledged in time. */
  async flushed(timeoutMs: number): Promise<boolean> {
    return endsWithin(Promise.all(this.#underWay), timeoutMs);
  }

  async close(): Promise<void> {
    await this.#client.endAsync(this.#underWay.size > 0);
  }
}

const isDown = (error: unknown): boolean =>
  ['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'EAI_AGAIN'].includes(
    (error as NodeJS.ErrnoException | null)?.code ?? '',
  );

/** Several addresses that all fail make an error without a message. */
const reasonOf = (error: unknown): string =>
  error instanceof AggregateError && error.message === ''
    ? error.errors.map(messageOf).join('; ')
    : messageOf(error) || 'it hung up';
