import type { IotConfig } from './config.ts';
import { type MqttSettings, mqttSettings } from './mqtt/options.ts';

/** The configured broker settings; undefined if there is no broker. */
export function mqttSettingsOf(config: IotConfig): MqttSettings | undefined {
  const brokerHost = config['mqtt.brokerHost'];
  if (brokerHost === null) return undefined;
  return mqttSettings({
    brokerHost,
    brokerPort: config['mqtt.brokerPort'],
    username: config['mqtt.username'],
    password: config['mqtt.password'],
    clientId: config['mqtt.clientId'],
    environmentId: config['mqtt.environmentId'],
    instanceId: config['mqtt.instanceId'],
    subscribeTopics: config['mqtt.subscribeTopics'].split(',').map((topic) => topic.trim()),
    sharedSubscriptionGroup: config['mqtt.sharedSubscriptionGroup'],
    sessionExpiryIntervalSeconds: config['mqtt.sessionExpiryIntervalSeconds'],
    tls: config['mqtt.tls'],
    tlsCa: config['mqtt.tlsCa'],
    tlsCertificate: config['mqtt.tlsCertificate'],
    tlsKey: config['mqtt.tlsKey'],
  });
}
