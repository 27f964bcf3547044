import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';

export const iotKeys = {
  'mqtt.brokerHost': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_BROKER_HOST', 'TALLYMAN_MQTT_BROKER_HOST'],
    doc: 'MQTT broker to take reads from. Without it there is no intake. In every mqtt key a `$` before a name in braces takes the value of that variable.',
    fallback: null,
  }),
  'mqtt.brokerPort': key({
    schema: whole(1, 65_535),
    env: ['MQTT_BROKER_PORT'],
    doc: 'Its port. TLS is on for 8883 and off for others, unless `mqtt.tls` says otherwise.',
    fallback: 8883,
  }),
  'mqtt.username': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_USERNAME'],
    doc: 'User at the broker.',
    fallback: null,
  }),
  'mqtt.password': key({
    schema: z.string().nullable(),
    env: ['MQTT_PASSWORD'],
    doc: 'Password at the broker.',
    fallback: null,
    secret: true,
  }),
  'mqtt.clientId': key({
    schema: z.string().min(1),
    env: ['MQTT_CLIENT_ID'],
    doc: 'First part of the client id, which is `{clientId}-{environmentId}-{instanceId}` and must stay the same over restarts.',
    fallback: 'mqtt-processor',
  }),
  'mqtt.environmentId': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_ENVIRONMENT_ID'],
    doc: 'Every environment gets every message. Must be set in production; elsewhere `local-{hostname}`.',
    fallback: null,
  }),
  'mqtt.instanceId': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_INSTANCE_ID'],
    doc: 'Identifies the instance within its environment, such as a StatefulSet ordinal. Default: the host name.',
    fallback: null,
  }),
  'mqtt.subscribeTopics': key({
    schema: z.string().min(1),
    env: ['MQTT_SUBSCRIBE_TOPICS'],
    doc: 'Topic filters, separated by commas.',
    fallback: 'zebra/fx/+/reads',
  }),
  'mqtt.sharedSubscriptionGroup': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_SHARED_SUBSCRIPTION_GROUP'],
    doc: 'Spreads the messages over the instances of an environment. Without it each instance gets them all.',
    fallback: null,
  }),
  'mqtt.sessionExpiryIntervalSeconds': key({
    schema: whole(0, 4_294_967_295),
    env: ['MQTT_SESSION_EXPIRY_SECONDS'],
    doc: 'How long the broker keeps messages for an instance that is disconnected.',
    fallback: 3600,
  }),
  'mqtt.tls': key<boolean | null>({
    schema: z.boolean().nullable(),
    env: ['MQTT_TLS'],
    doc: 'TLS to the broker. Default: on port 8883.',
    fallback: null,
  }),
  'mqtt.tlsCa': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_TLS_CA'],
    doc: 'CA of the broker, as PEM or the path of a file.',
    fallback: null,
  }),
  'mqtt.tlsCertificate': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_TLS_CERTIFICATE'],
    doc: 'Certificate of this client, as PEM or the path of a file.',
    fallback: null,
  }),
  'mqtt.tlsKey': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_TLS_KEY'],
    doc: 'Key of that certificate, as PEM or the path of a file.',
    fallback: null,
    secret: true,
  }),
} as const;

export type IotConfig = ValuesOf<typeof iotKeys>;
