/** Packets as the rest of the consumer sees them, and back. */
import type { IConnackPacket, IConnectPacket, IPublishPacket } from 'mqtt-packet';
import type { Delivery, MessageProperties, Qos } from './message.ts';
import type { MqttSettings } from './options.ts';

export type ProtocolVersion = 4 | 5;

/** The broker's answer to our CONNECT. */
export interface Welcome {
  readonly sessionPresent: boolean;
  /** Undefined in 3.1.1: the broker alone decides. */
  readonly sessionExpirySeconds: number | undefined;
  readonly keepAliveSeconds: number;
  readonly sharedSubscriptions: boolean;
  readonly maximumQos: Qos;
  readonly maximumPacketSize: number | undefined;
}

export function connectPacket(settings: MqttSettings, version: ProtocolVersion): IConnectPacket {
  const { clientId, username, password, cleanSession: clean, maxPacketSize } = settings;
  return {
    cmd: 'connect',
    protocolId: 'MQTT',
    protocolVersion: version,
    clientId,
    clean,
    keepalive: settings.keepAliveSeconds,
    ...(username !== null && { username }),
    ...(password !== null && { password: Buffer.from(password) }),
    ...(version === 5 && {
      properties: {
        sessionExpiryInterval: settings.sessionExpiryIntervalSeconds,
        receiveMaximum: settings.receiveMaximum,
        ...(maxPacketSize !== null && { maximumPacketSize: maxPacketSize }),
      },
    }),
  };
}

export function welcomeOf(
  { sessionPresent, properties = {} }: IConnackPacket,
  settings: MqttSettings,
  version: ProtocolVersion,
): Welcome {
  const expiry = properties.sessionExpiryInterval ?? settings.sessionExpiryIntervalSeconds;
  return {
    sessionPresent,
    sessionExpirySeconds: version === 5 ? expiry : undefined,
    keepAliveSeconds: properties.serverKeepAlive ?? settings.keepAliveSeconds,
    sharedSubscriptions: version === 5 && (properties.sharedSubscriptionAvailable ?? true),
    maximumQos: (properties.maximumQoS ?? 2) as Qos,
    maximumPacketSize: properties.maximumPacketSize,
  };
}

export function deliveryOf(packet: IPublishPacket): Delivery {
  const { topic, payload, qos, dup, retain, messageId = 0, properties } = packet;
  return {
    packetId: messageId,
    message: {
      topic,
      payload: typeof payload === 'string' ? Buffer.from(payload) : payload,
      qos,
      duplicate: dup,
      retained: retain,
      receivedAt: new Date(),
      ...(properties !== undefined && { properties: properties as MessageProperties }),
    },
  };
}

const firstBytes = { puback: 0x40, pubrec: 0x50, pubcomp: 0x70 } as const;

export interface Acknowledgement {
  readonly type: keyof typeof firstBytes;
  readonly packetId: number;
}

/** Many in one buffer, four bytes each: the reason code for success can be left out. */
export function acknowledgementBytes(acknowledgements: readonly Acknowledgement[]): Buffer {
  const bytes = Buffer.allocUnsafe(acknowledgements.length * 4);
  for (const [i, { type, packetId }] of acknowledgements.entries()) {
    bytes.writeUInt16BE((firstBytes[type] << 8) | 2, i * 4);
    bytes.writeUInt16BE(packetId, i * 4 + 2);
  }
  return bytes;
}
