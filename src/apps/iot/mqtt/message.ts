export type Qos = 0 | 1 | 2;

export interface MqttMessage {
  readonly topic: string;
  readonly payload: Buffer;
  readonly qos: Qos;
  /** The broker sent it before, perhaps to a process that died. It may or may not have been committed. */
  readonly duplicate: boolean;
  /** The broker kept it for new subscribers. */
  readonly retained: boolean;
  readonly receivedAt: Date;
  /** MQTT 5 only. */
  readonly properties?: MessageProperties;
}

export interface MessageProperties {
  readonly contentType?: string;
  readonly responseTopic?: string;
  readonly correlationData?: Buffer;
  readonly messageExpiryInterval?: number;
  readonly userProperties?: Readonly<Record<string, string | string[]>>;
}

/** A message and its packet id, for the acknowledgement (0 for QoS 0, which needs none). */
export interface Delivery {
  readonly message: MqttMessage;
  readonly packetId: number;
}
