import type { IotConfig } from './config.ts';
import { type MqttSettings, mqttSettings } from './mqtt/options.ts';
import { type Subscription, subscriptionsOf } from './subscriptions.ts';

/** The configured broker settings; undefined if there is no broker. */
export function mqttSettingsOf(config: IotConfig): MqttSettings | undefined {
  const brokerHost = config['mqtt.brokerHost'];
  if (brokerHost === null) return undefined;
  return mqttSettings({
    enabled: config['mqtt.enabled'],
    brokerHost,
    brokerPort: config['mqtt.brokerPort'],
    username: config['mqtt.username'],
    password: config['mqtt.password'],
    allowClearTextPassword: config['mqtt.allowClearTextPassword'],
    clientId: config['mqtt.clientId'],
    environmentId: config['mqtt.environmentId'],
    instanceId: config['mqtt.instanceId'],
    appendUniqueIdToClientId: config['mqtt.appendUniqueIdToClientId'],
    subscribeTopics: configuredSubscriptions(config).map(({ topic }) => topic),
    sharedSubscriptionGroup: config['mqtt.sharedSubscriptionGroup'],
    qos: config['mqtt.qos'],
    cleanSession: config['mqtt.cleanSession'],
    sessionExpiryIntervalSeconds: config['mqtt.sessionExpiryIntervalSeconds'],
    autoReconnect: config['mqtt.autoReconnect'],
    reconnectDelaySeconds: config['mqtt.reconnectDelaySeconds'],
    maxReconnectDelaySeconds: config['mqtt.maxReconnectDelaySeconds'],
    connectTimeoutSeconds: config['mqtt.connectTimeoutSeconds'],
    keepAliveSeconds: config['mqtt.keepAliveSeconds'],
    receiveMaximum: config['mqtt.receiveMaximum'],
    maxInFlightBytes: config['mqtt.maxInFlightBytes'],
    maxPacketSize: config['mqtt.maxPacketSize'],
    maxBatch: config['mqtt.maxBatch'],
    maxBatchBytes: config['mqtt.maxBatchBytes'],
    maxBatchReads: config['mqtt.maxBatchReads'],
    protocol: config['mqtt.protocol'],
    tls: config['mqtt.tls'],
    tlsCa: config['mqtt.tlsCa'],
    tlsCertificate: config['mqtt.tlsCertificate'],
    tlsKey: config['mqtt.tlsKey'],
    tlsServerName: config['mqtt.tlsServerName'],
  });
}

export const configuredSubscriptions = (config: IotConfig): Subscription[] =>
  subscriptionsOf(config['mqtt.subscribeTopics']);
