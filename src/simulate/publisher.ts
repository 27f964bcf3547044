/** Sends to a broker at QoS 2, a few messages at a time, in order. */
import { randomBytes } from 'node:crypto';
import type { MqttClient } from 'mqtt';
import { describe } from '../engine/database/database.ts';
import { messageOf, TallymanError } from '../engine/errors.ts';
import { type Logger, silentLogger } from '../engine/logger.ts';
import { endsWithin } from '../engine/resilience/deadline.ts';
import { Outage } from '../engine/resilience/outage.ts';

/** MQTT.js ignores the receive maximum; a broker drops messages beyond its own, and the smallest usual one is 20. */
const defaultInFlight = 15;
const connectTimeoutMs = 8000;
/** How long the broker keeps the state of our handshakes when the connection breaks. */
const sessionExpirySeconds = 120;

export interface PublisherOptions {
  readonly logger?: Logger;
  /** The most messages that are sent and not acknowledged. Default 15. */
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
        // Report a failed first connect instead of retrying forever.
        false,
      );
    try {
      // Brokers that support only 3.1.1 refuse 5 with a reason code, or close the connection.
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

  /** Resolves when there is room; calls `onAcknowledged` when the broker has accepted the message. */
  async send(topic: string, payload: string, onAcknowledged?: () => void): Promise<void> {
    while (this.#underWay.size >= this.#mostInFlight) await Promise.race(this.#underWay);
    const sending = this.#client.publishAsync(topic, payload, { qos: 2 }).then(
      () => {
        this.acknowledged += 1;
        onAcknowledged?.();
      },
      // It stays unacknowledged, and the books show that.
      () => {},
    );
    this.#underWay.add(sending);
    void sending.finally(() => this.#underWay.delete(sending));
  }

  /** True if everything is acknowledged in time. */
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

/** If several addresses fail, the error has no message of its own. */
const reasonOf = (error: unknown): string =>
  error instanceof AggregateError && error.message === ''
    ? error.errors.map(messageOf).join('; ')
    : messageOf(error) || 'it hung up';
