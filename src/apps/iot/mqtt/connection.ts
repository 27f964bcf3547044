/**
 * One connection to the broker: CONNECT, SUBSCRIBE, keep-alive, and the receiving half of QoS 1 and 2.
 *
 *   dialling ──CONNACK──> open ──ignore()──> leaving ──close()──> ended
 *       └────────────────────┴── cut, refused, silent, malformed ───^
 *
 * It acknowledges only PUBREL by itself: a PUBREL answers our PUBREC, which we sent after the commit. A PUBREL for an id
 * that this process never saw belongs to a commit of an earlier process, and is answered, too.
 */
import type { Socket } from 'node:net';
import { generate, type IConnackPacket, type IPublishPacket, type Packet, parser } from 'mqtt-packet';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import { brokerOf, dial } from './dial.ts';
import type { Delivery, MqttMessage, Qos } from './message.ts';
import type { MqttSettings } from './options.ts';
import { type Oversized, OversizeFilter } from './oversize.ts';
import {
  type Acknowledgement,
  acknowledgementBytes,
  connectPacket,
  deliveryOf,
  type ProtocolVersion,
  type Welcome,
  welcomeOf,
} from './packets.ts';
import { fromReturnCode, reasonText, socketText, unsupportedVersion } from './reasons.ts';

export interface ConnectionOptions {
  readonly version: ProtocolVersion;
  readonly onDelivery: (connection: Connection, delivery: Delivery) => void;
  /** Such a message is left out; the delivery has its place in the order, for the acknowledgement. */
  readonly onOversized?: (connection: Connection, delivery: Delivery, bytes: number) => void;
  /** Aborting it cuts the connection, at any stage. */
  readonly signal?: AbortSignal;
}

/** How long a broker may take to close the connection after our DISCONNECT. */
const goodbyeMs = 1_000;

export class Connection {
  readonly version: ProtocolVersion;
  /** Resolves with the reason when the connection has ended. */
  readonly ended: Promise<string>;
  readonly #settings: MqttSettings;
  readonly #socket: Socket;
  readonly #onDelivery: ConnectionOptions['onDelivery'];
  readonly #filter: OversizeFilter | undefined;
  readonly #onOversized: ConnectionOptions['onOversized'];
  readonly #parser: ReturnType<typeof parser>;
  readonly #welcomed = Promise.withResolvers<Welcome>();
  readonly #end: (reason: string) => void;
  readonly #subscribing = new Map<number, (granted: number[]) => void>();
  #welcome: Welcome | undefined;
  #opening: Buffer | undefined = Buffer.alloc(0);
  #released: number[] = [];
  #nextPacketId = 1;
  #pinging: NodeJS.Timeout | undefined;
  #heard = true;
  #leaving = false;
  #over = false;

  /** Resolves when the broker has accepted us; throws MQTT_REFUSED, MQTT_UNREACHABLE or MQTT_CLOSED. */
  static async open(settings: MqttSettings, options: ConnectionOptions): Promise<Connection> {
    const connection = new Connection(settings, await dial(settings), options);
    await connection.#welcomed.promise;
    return connection;
  }

  private constructor(settings: MqttSettings, socket: Socket, options: ConnectionOptions) {
    this.version = options.version;
    this.#settings = settings;
    this.#socket = socket;
    this.#onDelivery = options.onDelivery;
    this.#onOversized = options.onOversized;
    const limit = settings.maxPacketSize;
    if (limit !== null && options.onOversized)
      this.#filter = new OversizeFilter(limit, (message) => this.#leaveOut(message));
    const { promise, resolve } = Promise.withResolvers<string>();
    this.ended = promise;
    this.#end = resolve;
    this.#welcomed.promise.catch(() => {});
    this.#parser = parser({ protocolVersion: options.version });
    this.#parser.on('packet', (packet) => this.#receive(packet));
    this.#parser.on('error', (error: Error) =>
      this.#fail('MQTT_CLOSED', `malformed packet: ${error.message}`, 0x81),
    );
    socket.once(settings.tls ? 'secureConnect' : 'connect', () =>
      this.#write(connectPacket(settings, this.version)),
    );
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('error', (error) => this.#fail('MQTT_UNREACHABLE', socketText(error)));
    socket.on('close', () => this.#fail('MQTT_CLOSED', this.#closedText()));
    const cut = (): void => this.#fail('MQTT_CLOSED', 'the connection was given up');
    if (options.signal?.aborted) cut();
    options.signal?.addEventListener('abort', cut, { once: true });
    void this.ended.then(() => options.signal?.removeEventListener('abort', cut));
  }

  get welcome(): Welcome {
    if (this.#welcome === undefined) throw new Error('the connection is not open');
    return this.#welcome;
  }

  get isOpen(): boolean {
    return this.#welcome !== undefined && !this.#over;
  }

  /** Returns for each filter the granted QoS, or a reason code of 0x80 and above. */
  async subscribe(filters: readonly string[], qos: Qos): Promise<number[]> {
    const messageId = this.#nextPacketId++;
    const { promise, resolve } = Promise.withResolvers<number[]>();
    this.#subscribing.set(messageId, resolve);
    // rh 1: retained messages come with a new subscription, not again at each reconnect.
    const subscriptions = filters.map((topic) => ({ topic, qos, ...(this.version === 5 && { rh: 1 }) }));
    this.#write({ cmd: 'subscribe', messageId, subscriptions });
    const lost = this.ended.then((reason): never => {
      throw new TallymanError('MQTT_CLOSED', `${reason}, before it answered to the subscription`);
    });
    return Promise.race([promise, lost]);
  }

  /** Acknowledges durable messages, in the given order, which must be the order of arrival. */
  acknowledge(deliveries: readonly Delivery[]): void {
    const due = deliveries.filter(({ message }) => message.qos > 0);
    const acknowledgements = due.map(({ message, packetId }): Acknowledgement => {
      return { type: message.qos === 1 ? 'puback' : 'pubrec', packetId };
    });
    if (due.length > 0) this.#send(acknowledgementBytes(acknowledgements));
  }

  /** Pauses and resumes reading: unread messages stay in the network's buffers and then at the broker. */
  pause(): void {
    if (!this.#leaving) this.#socket.pause();
  }

  resume(): void {
    // Messages that arrived meanwhile are about to be read; until then silence proves nothing.
    this.#heard = true;
    if (this.#socket.isPaused()) this.#socket.resume();
  }

  /** From now on messages are left to the broker. Reading continues: closing with unread bytes would reset the connection. */
  ignore(): void {
    this.#leaving = true;
    this.resume();
  }

  /** Disconnects; the broker keeps the session. */
  async close(): Promise<void> {
    if (this.#over) return;
    this.ignore();
    this.#socket.end(generate({ cmd: 'disconnect' }, { protocolVersion: this.version }));
    const late = setTimeout(() => this.#socket.destroy(), goodbyeMs);
    await this.ended;
    clearTimeout(late);
  }

  /** Cuts the connection without DISCONNECT: after a protocol error, and for tests. */
  destroy(reason: string): void {
    this.#fail('MQTT_CLOSED', reason);
  }

  #read(chunk: Buffer): void {
    this.#heard = true;
    const bytes = this.#opening === undefined ? chunk : this.#firstAnswer(this.#opening, chunk);
    if (bytes === undefined || this.#over) return;
    for (const part of this.#filter?.pass(bytes) ?? [bytes]) this.#parse(part);
    if (this.#released.length === 0) return;
    const acknowledgements = this.#released.map((packetId) => ({ type: 'pubcomp', packetId }) as const);
    this.#send(acknowledgementBytes(acknowledgements));
    this.#released = [];
  }

  #parse(bytes: Buffer): void {
    const unread = this.#parser.parse(bytes);
    const limit = this.#settings.maxPacketSize;
    if (limit !== null && unread > limit) this.#fail('MQTT_CLOSED', `a packet beyond ${limit} bytes`, 0x95);
  }

  #leaveOut({ topic, qos, packetId, bytes, isMalformed }: Oversized): void {
    if (this.#over || this.#leaving) return;
    if (isMalformed || this.#welcome === undefined || qos > 2 || (qos > 0 && packetId === 0))
      return this.#fail('MQTT_CLOSED', 'a malformed message', 0x81);
    const message: MqttMessage = {
      topic,
      payload: Buffer.alloc(0),
      qos: qos as Qos,
      duplicate: false,
      retained: false,
      receivedAt: new Date(),
    };
    this.#onOversized?.(this, { message, packetId }, bytes);
  }

  /** A broker that speaks no MQTT 5 refuses in the format of 3.1.1, which lacks what a parser of 5 waits for. */
  #firstAnswer(opening: Buffer, chunk: Buffer): Buffer | undefined {
    const bytes = Buffer.concat([opening, chunk]);
    this.#opening = bytes.length < 4 ? bytes : undefined;
    if (bytes.length < 4) return undefined;
    if (this.version === 5 && bytes[0] === 0x20 && bytes[1] === 2) {
      this.#refuse(bytes[3] === 0 ? unsupportedVersion : fromReturnCode(bytes[3] ?? 0));
      return undefined;
    }
    return bytes;
  }

  #receive(packet: Packet): void {
    if (this.#over) return;
    if (packet.cmd === 'connack' && this.#welcome === undefined) return this.#enter(packet);
    if (this.#welcome === undefined)
      return this.#fail('MQTT_CLOSED', `it began with ${packet.cmd}: not an MQTT broker?`);
    switch (packet.cmd) {
      case 'publish':
        return this.#deliver(packet);
      case 'pubrel':
        this.#released.push(packet.messageId ?? 0);
        return;
      case 'suback': {
        const answered = this.#subscribing.get(packet.messageId ?? 0);
        this.#subscribing.delete(packet.messageId ?? 0);
        answered?.(packet.granted.map(Number));
        return;
      }
      case 'pingresp':
        return;
      case 'disconnect':
        return this.#fail(
          'MQTT_CLOSED',
          `it ended the connection: ${reasonText(packet.reasonCode ?? 0, packet.properties?.reasonString)}`,
        );
      default:
        this.#fail('MQTT_CLOSED', `an unexpected ${packet.cmd}`, 0x82);
    }
  }

  #enter(packet: IConnackPacket): void {
    const { reasonCode, returnCode, properties } = packet;
    const code = this.version === 5 ? (reasonCode ?? 0) : returnCode ? fromReturnCode(returnCode) : 0;
    if (code !== 0) return this.#refuse(code, properties?.reasonString);
    const welcome = welcomeOf(packet, this.#settings, this.version);
    this.#welcome = welcome;
    // A server keep-alive of 0 turns it off at the broker; we still check for silence, at our own interval.
    const seconds = welcome.keepAliveSeconds || this.#settings.keepAliveSeconds;
    this.#pinging = setInterval(() => this.#ping(seconds), seconds * 500);
    this.#welcomed.resolve(welcome);
  }

  #ping(keepAliveSeconds: number): void {
    if (!this.#heard && !this.#socket.isPaused())
      return this.#fail('MQTT_CLOSED', `it has been silent for ${keepAliveSeconds / 2} s, also to a ping`);
    this.#heard = false;
    this.#write({ cmd: 'pingreq' });
  }

  #deliver(packet: IPublishPacket): void {
    if (this.#leaving) return;
    if (packet.qos > 0 && !packet.messageId)
      return this.#fail('MQTT_CLOSED', 'a message without a packet id', 0x81);
    this.#onDelivery(this, deliveryOf(packet));
  }

  #write(packet: Packet): void {
    try {
      this.#send(generate(packet, { protocolVersion: this.version }));
    } catch (error) {
      this.#fail('MQTT_CLOSED', `a ${packet.cmd} cannot be written: ${messageOf(error)}`);
    }
  }

  /** After DISCONNECT nothing is sent any more: it would reset the connection, and earlier packets might go unread. */
  #send(bytes: Buffer): void {
    if (!this.#over && this.#socket.writable) this.#socket.write(bytes);
  }

  #refuse(code: number, reasonString?: string): void {
    this.#fail('MQTT_REFUSED', `it does not let us in: ${reasonText(code, reasonString)}`, undefined, {
      reasonCode: code,
    });
  }

  #closedText(): string {
    if (this.#leaving) return 'closed';
    if (this.#welcome !== undefined)
      return 'it closed the connection without a word, as some do when another client has our client id';
    const guesses = [
      ...(this.#settings.tls ? [] : ['that port wants TLS']),
      ...(this.version === 5 ? ['it speaks MQTT 3.1.1 only (then set protocol)'] : []),
    ];
    const perhaps = guesses.length > 0 ? `; perhaps ${guesses.join(', or ')}` : '';
    return `it closed the connection before it answered${perhaps}`;
  }

  /** The only way to end. `goodbye`: the reason code for the broker, if it gets one. */
  #fail(code: string, reason: string, goodbye?: number, details: Record<string, unknown> = {}): void {
    if (this.#over) return;
    if (goodbye !== undefined && this.version === 5 && this.#welcome !== undefined)
      this.#write({ cmd: 'disconnect', reasonCode: goodbye });
    this.#over = true;
    clearInterval(this.#pinging);
    this.#socket.destroySoon();
    if (goodbye === undefined) this.#socket.destroy();
    this.#welcomed.reject(new TallymanError(code, `${brokerOf(this.#settings)}: ${reason}`, { details }));
    this.#end(reason);
  }
}
