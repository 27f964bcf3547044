export {
  MqttConsumer,
  type MqttConsumerOptions,
  type Route,
  type SessionGap,
} from './consumer.ts';
export { type DoctorMqttOptions, doctorMqtt } from './doctor.ts';
export type { DeadLetter, OnBatch, OnCommit } from './intake.ts';
export type { MessageProperties, MqttMessage, Qos } from './message.ts';
export { type MqttOptions, type MqttSettings, mqttOptions, mqttSettings } from './options.ts';
export type { MqttCounters, MqttState, MqttStatus, MqttSubscription } from './status.ts';
export { matches } from './topics.ts';
