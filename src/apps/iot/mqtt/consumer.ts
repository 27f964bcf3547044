/**
 * A receive-only MQTT client that acknowledges after the caller's commit.
 *
 *     const consumer = new MqttConsumer({
 *       settings: mqttSettings({ brokerHost: 'broker', subscribeTopics: ['plant/+/reads'] }),
 *       onBatch: (messages) => database.transaction((tx) => save(tx, messages)),
 *     });
 *     await consumer.start();
 *
 * A message is delivered at least once: again whenever its acknowledgement did not reach the broker. The commit must
 * recognise it by its own idempotency key. Nothing else survives a crash on both sides, least of all packet ids.
 */
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import { type Logger, silentLogger } from '../../../engine/logger.ts';
import { type BackoffLimits, backoffMs } from '../../../engine/resilience/backoff.ts';
import { pause, within } from '../../../engine/resilience/deadline.ts';
import { Link, type Session } from '../../../engine/resilience/link.ts';
import { Outage } from '../../../engine/resilience/outage.ts';
import type { Connection } from './connection.ts';
import { brokerOf } from './dial.ts';
import { type DeadLetter, Intake, type OnBatch, type OnCommit } from './intake.ts';
import type { Delivery, MqttMessage } from './message.ts';
import { negotiate } from './negotiate.ts';
import type { MqttSettings } from './options.ts';
import type { ProtocolVersion } from './packets.ts';
import { type MqttState, type MqttStatus, type MqttSubscription, protocolName } from './status.ts';
import { subscribeAll } from './subscriptions.ts';
import { flawOf, matches } from './topics.ts';

export interface Route {
  /** A topic filter to subscribe to; the first route that matches gets the message. */
  readonly filter: string;
  readonly onBatch: OnBatch;
}

/** The broker kept no session for us: messages published while we were disconnected must come from elsewhere. */
export interface SessionGap {
  /** True: this process had a session, and it is gone. False: the first connect of a process, perhaps the first ever. */
  readonly reconnect: boolean;
  /** When this process was last connected. */
  readonly since: Date | undefined;
}

export interface MqttConsumerOptions {
  readonly settings: MqttSettings;
  /** Gets messages that no route matches. */
  readonly onBatch: OnBatch;
  readonly routes?: readonly Route[];
  readonly deadLetter?: DeadLetter;
  /** Called with each message on arrival, while others are being committed: for work that needs no database. Must not throw. */
  readonly onArrival?: (message: MqttMessage) => void;
  /** How many reads a message holds, for `maxBatchReads`; called after `onArrival`. Default: 1. */
  readonly readsIn?: (message: MqttMessage) => number;
  /** Called after each commit, also after one that failed. Must not throw. */
  readonly onCommit?: OnCommit;
  /** Fills the gap; called after subscribing, so that no message is missed. Retried until it resolves. */
  readonly onSessionGap?: (gap: SessionGap) => Promise<void>;
  readonly logger?: Logger;
}

/** Longer than a connection takes to close: the last acknowledgements must reach the broker. */
const closeTimeoutMs = 2_000;
const maxLoggedTopics = 1000;

export class MqttConsumer {
  readonly #settings: MqttSettings;
  readonly #options: MqttConsumerOptions;
  readonly #logger: Logger;
  readonly #topics: readonly string[];
  readonly #link: Link<Session>;
  readonly #delay: BackoffLimits;
  #intake: Intake;
  #stopping: AbortController | undefined;
  #gaps: Promise<void> = Promise.resolve();
  #connection: Connection | undefined;
  #subscriptions: readonly MqttSubscription[] = [];
  #state: MqttState;
  #since = new Date();
  #reason: string | undefined;
  #version: ProtocolVersion | undefined;
  #connects = 0;
  /** Told once for each topic: a device that sends one too large sends many. */
  readonly #oversizedTopics = new Set<string>();
  #lastConnected: Date | undefined;

  constructor(options: MqttConsumerOptions) {
    const { settings, routes = [], logger = silentLogger } = options;
    this.#settings = settings;
    this.#options = options;
    this.#logger = logger;
    for (const { filter } of routes) {
      const flaw = flawOf(filter);
      if (flaw !== undefined)
        throw new TallymanError('BAD_OPTION', `"${filter}" is no topic filter: ${flaw}`);
    }
    this.#topics = [...new Set([...settings.subscribeTopics, ...routes.map(({ filter }) => filter)])];
    this.#state = settings.enabled ? 'stopped' : 'disabled';
    this.#delay = {
      minMs: settings.reconnectDelaySeconds * 1000,
      maxMs: Math.max(settings.maxReconnectDelaySeconds, settings.reconnectDelaySeconds) * 1000,
    };
    this.#link = new Link({
      connect: (signal) => this.#connect(signal),
      outage: new Outage(
        logger,
        { broker: brokerOf(settings), clientId: settings.clientId },
        { down: 'MQTT broker lost or out of reach; trying again', up: 'MQTT broker is back' },
      ),
      reconnect: this.#delay,
      connectTimeoutMs: settings.connectTimeoutSeconds * 1000,
      closeTimeoutMs,
      autoReconnect: settings.autoReconnect,
      onState: (state, reason) => this.#become(state === 'up' ? 'connected' : state, reason),
      onCleared: () => {
        this.#connection = undefined;
        this.#intake.forget();
      },
    });
    this.#intake = this.#newIntake();
  }

  status(): MqttStatus {
    const connection = this.#state === 'connected' ? this.#connection : undefined;
    const reason = this.#troubleOf(connection);
    return {
      state: this.#state,
      since: this.#since,
      ready:
        connection !== undefined &&
        this.#topics.length > 0 &&
        this.#subscriptions.every(({ granted }) => typeof granted === 'number'),
      ...(reason !== undefined && { reason }),
      broker: brokerOf(this.#settings),
      clientId: this.#settings.clientId,
      environmentId: this.#settings.environmentId,
      ...(connection && { protocol: protocolName(connection.version), welcome: connection.welcome }),
      subscriptions: this.#subscriptions,
      counters: {
        ...this.#intake.counters,
        reconnects: Math.max(0, this.#connects - 1),
        inFlight: this.#intake.inFlight,
        bytesInFlight: this.#intake.bytesInFlight,
        oldestInFlightSeconds: ageOf(this.#intake.oldestInFlight),
        isPaused: this.#intake.isPaused,
        rejectedInARow: this.#intake.rejectedInARow,
      },
    };
  }

  #troubleOf(connection: Connection | undefined): string | undefined {
    if (this.#reason !== undefined || connection === undefined) return this.#reason;
    if (this.#topics.length === 0) return 'no topics are subscribed to: set mqtt.subscribeTopics';
    const refused = this.#subscriptions.find(({ granted }) => typeof granted === 'string');
    return refused && `the subscription ${refused.topic} was refused: ${refused.granted}`;
  }

  /** Resolves when the first attempt has ended; `status()` tells how. It keeps trying either way. */
  async start(): Promise<void> {
    if (!this.#settings.enabled) return;
    if (this.#stopping !== undefined)
      throw new TallymanError('ALREADY_STARTED', 'this MQTT consumer has been started; stop it first');
    this.#stopping = new AbortController();
    await this.#link.start();
  }

  /**
   * Stops taking messages, waits for the current batch, acknowledges it and disconnects; the broker keeps the session. A batch
   * that takes longer than `timeoutMs` is not acknowledged, and will be delivered again.
   */
  async stop({ timeoutMs = 10_000 }: { readonly timeoutMs?: number } = {}): Promise<void> {
    if (this.#stopping === undefined) return;
    this.#become('stopping');
    this.#connection?.ignore();
    await within(this.#intake.stop(), timeoutMs).catch(() =>
      this.#logger.warn({ timeoutMs }, 'an MQTT batch did not end in time; it will be delivered again'),
    );
    this.#stopping.abort();
    await this.#link.stop();
    await within(this.#gaps, timeoutMs).catch(() =>
      this.#logger.warn({ timeoutMs }, 'filling a gap did not end in time; it must be run again'),
    );
    const { counters } = this.#intake;
    this.#intake = this.#newIntake();
    Object.assign(this.#intake.counters, counters);
    this.#stopping = undefined;
    this.#become('stopped');
  }

  #newIntake(): Intake {
    const { onBatch, routes = [], deadLetter, onArrival, readsIn, onCommit } = this.#options;
    const { maxBatch, maxBatchBytes, maxBatchReads, receiveMaximum, maxInFlightBytes } = this.#settings;
    return new Intake({
      handlerOf: (topic) => routes.find(({ filter }) => matches(filter, topic))?.onBatch ?? onBatch,
      deadLetter,
      onArrival,
      readsIn,
      onCommit,
      maxBatch,
      maxBatchBytes,
      maxBatchReads,
      // One more than the broker may send: PUBRELs must still be read when the receive maximum is reached.
      maxMessages: receiveMaximum + 1,
      maxBytes: maxInFlightBytes,
      logger: this.#logger,
    });
  }

  /** It would come again at every connect, and nothing behind it. A broker of MQTT 5 leaves it out itself, and tells nobody. */
  #leaveOut(connection: Connection, delivery: Delivery, bytes: number): void {
    const { maxPacketSize } = this.#settings;
    const { topic } = delivery.message;
    const isNew = !this.#oversizedTopics.has(topic);
    if (isNew && this.#oversizedTopics.size < maxLoggedTopics) this.#oversizedTopics.add(topic);
    this.#logger[isNew ? 'error' : 'debug'](
      { broker: brokerOf(this.#settings), topic, bytes, maxPacketSize },
      'an MQTT message is larger than mqtt.maxPacketSize; it was acknowledged and not processed. To receive it, raise the limit and have it sent again',
    );
    this.#intake.leaveOut(connection, delivery);
  }

  async #connect(signal: AbortSignal): Promise<Session> {
    const onDelivery = this.#intake.receive.bind(this.#intake);
    const onOversized = this.#leaveOut.bind(this);
    const connection = await negotiate(this.#settings, { onDelivery, onOversized, signal }, this.#version);
    this.#connection = connection;
    // Remember the negotiated version for the next connect.
    this.#version = connection.version;
    const { clientId, environmentId, cleanSession } = this.#settings;
    const { sessionPresent, sessionExpirySeconds } = connection.welcome;
    this.#logger.info(
      {
        broker: brokerOf(this.#settings),
        environmentId,
        clientId,
        cleanStart: cleanSession,
        sessionExpirySeconds: sessionExpirySeconds ?? null,
        sessionPresent,
        protocol: protocolName(connection.version),
      },
      'MQTT connected',
    );
    const { sessionExpiryIntervalSeconds: asked } = this.#settings;
    if (sessionExpirySeconds !== undefined && sessionExpirySeconds < asked)
      this.#logger.warn(
        { asked, granted: sessionExpirySeconds },
        'the broker keeps our session for less long than asked: a longer outage loses messages',
      );
    this.#subscriptions = await subscribeAll(connection, this.#settings, this.#topics, this.#logger);
    const refused = this.#subscriptions.filter(({ granted }) => typeof granted === 'string');
    if (refused.length > 0 && refused.length === this.#subscriptions.length) {
      await connection.close();
      throw new TallymanError('MQTT_REFUSED', `every subscription was refused: ${refused[0]?.granted}`);
    }
    this.#connects += 1;
    if (!sessionPresent) this.#fillGap({ reconnect: this.#connects > 1, since: this.#lastConnected });
    return {
      ended: connection.ended,
      close: () => {
        this.#lastConnected = new Date();
        return connection.close();
      },
    };
  }

  /** One after another, each until it succeeds: an unfilled gap is lost data. */
  #fillGap(gap: SessionGap): void {
    const { onSessionGap } = this.#options;
    const level = gap.reconnect ? 'warn' : 'info';
    this.#logger[level](
      { ...gap, clientId: this.#settings.clientId },
      gap.reconnect
        ? 'the broker has no session for us any more: what was published meanwhile has to be replayed'
        : 'the broker has no session for us yet: it keeps messages from now on',
    );
    const stopped = this.#stopping?.signal;
    if (onSessionGap === undefined || stopped === undefined) return;
    this.#gaps = this.#gaps.then(async () => {
      for (let failures = 0; !stopped.aborted; failures += 1) {
        try {
          return await onSessionGap(gap);
        } catch (error) {
          this.#logger.error(
            { ...gap, reason: messageOf(error) },
            'the gap could not be filled; trying again',
          );
          await pause(backoffMs(failures, this.#delay), stopped);
        }
      }
    });
  }

  #become(state: MqttState, reason?: string): void {
    // While stopping, ignore changes of the connection.
    if (this.#state === 'stopping' && state !== 'stopped') return;
    if (this.#state !== state) this.#since = new Date();
    this.#state = state;
    this.#reason = reason;
  }
}

const ageOf = (since: Date | undefined): number =>
  since === undefined ? 0 : Math.max(0, (Date.now() - since.getTime()) / 1000);
