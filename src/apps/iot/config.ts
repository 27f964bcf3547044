import { z } from 'zod';
import { key, type ValuesOf, whole } from '../../config/key.ts';
import { type SubscriptionSetting, subscriptionSettings } from './subscriptions.ts';

/** A whole number or nothing; a variable has it as text. */
const optionalWhole = (min: number, max: number) =>
  z.union([
    z.null(),
    whole(min, max),
    z.string().regex(/^\d+$/, 'expected a whole number').transform(Number).pipe(whole(min, max)),
  ]);

export const iotKeys = {
  'mqtt.enabled': key({
    schema: z.boolean(),
    env: ['MQTT_ENABLED'],
    doc: 'False: take no messages, though a broker is set.',
    fallback: true,
  }),
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
  'mqtt.allowClearTextPassword': key({
    schema: z.boolean(),
    env: ['MQTT_ALLOW_CLEAR_TEXT_PASSWORD'],
    doc: 'Send the password without TLS to a broker on another machine. It is refused otherwise.',
    fallback: false,
  }),
  'mqtt.clientId': key({
    schema: z.string().min(1),
    env: ['MQTT_CLIENT_ID'],
    doc: 'First part of the client id, which is `{clientId}-{environmentId}-{instanceId}` and must stay the same over restarts.',
    fallback: 'mqtt-processor',
  }),
  'mqtt.environmentId': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_MQTT_ENVIRONMENT_ID'],
    doc: 'Every environment gets every message. Without it the variable `MQTT_ENVIRONMENT_ID` counts, and outside of production `local-{hostname}`. In production (`NODE_ENV`, Kubernetes, Azure Container Apps, ECS) one of the two must be set.',
    fallback: null,
  }),
  'mqtt.instanceId': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_INSTANCE_ID'],
    doc: 'Identifies the instance within its environment, such as a StatefulSet ordinal. Default: the host name.',
    fallback: null,
  }),
  'mqtt.appendUniqueIdToClientId': key({
    schema: z.boolean(),
    env: ['MQTT_APPEND_UNIQUE_ID_TO_CLIENT_ID'],
    doc: 'A new client id at each start, for tests: what the broker keeps for the old one is never fetched.',
    fallback: false,
  }),
  'mqtt.subscribeTopics': key<readonly SubscriptionSetting[]>({
    schema: subscriptionSettings,
    env: ['MQTT_SUBSCRIBE_TOPICS'],
    doc: 'What is subscribed to; nothing is added. Topic filters, separated by commas, or a list of `{"topic", "parser", "tenant", "device"}` (docs/mqtt.md).',
    fallback: [],
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
  'mqtt.cleanSession': key({
    schema: z.boolean(),
    env: ['MQTT_CLEAN_SESSION'],
    doc: 'True: the broker keeps nothing while we are disconnected.',
    fallback: false,
  }),
  'mqtt.qos': key<0 | 1 | 2>({
    schema: z.literal([0, 1, 2]),
    env: ['MQTT_QOS'],
    doc: 'Quality of service of the subscriptions.',
    fallback: 2,
  }),
  'mqtt.autoReconnect': key({
    schema: z.boolean(),
    env: ['MQTT_AUTO_RECONNECT'],
    doc: 'Connect again when the connection is lost.',
    fallback: true,
  }),
  'mqtt.reconnectDelaySeconds': key({
    schema: z.number().min(0.01).max(3600),
    env: ['MQTT_RECONNECT_DELAY_SECONDS'],
    doc: 'Before the first attempt to connect again; half of it is chance.',
    fallback: 5,
  }),
  'mqtt.maxReconnectDelaySeconds': key({
    schema: z.number().min(0.01).max(86_400),
    env: ['MQTT_MAX_RECONNECT_DELAY_SECONDS'],
    doc: 'The delay doubles with each failure in a row, up to this.',
    fallback: 60,
  }),
  'mqtt.connectTimeoutSeconds': key({
    schema: z.number().min(0.1).max(600),
    env: ['MQTT_CONNECT_TIMEOUT_SECONDS'],
    doc: 'An attempt to connect ends after this.',
    fallback: 10,
  }),
  'mqtt.keepAliveSeconds': key({
    schema: whole(1, 65_535),
    env: ['MQTT_KEEP_ALIVE_SECONDS'],
    doc: 'A broker that is silent for longer is left.',
    fallback: 30,
  }),
  'mqtt.receiveMaximum': key({
    schema: whole(1, 65_535),
    env: ['MQTT_RECEIVE_MAXIMUM'],
    doc: 'Messages that the broker may have sent and we have not committed.',
    fallback: 1000,
  }),
  'mqtt.maxInFlightBytes': key({
    schema: whole(1024),
    env: ['MQTT_MAX_IN_FLIGHT_BYTES'],
    doc: 'Reading pauses while this many bytes wait for their commit.',
    fallback: 64 * 1024 * 1024,
  }),
  'mqtt.maxPacketSize': key<number | null>({
    schema: optionalWhole(128, 268_435_455),
    env: ['MQTT_MAX_PACKET_SIZE'],
    doc: 'The largest message. A broker of MQTT 5 drops larger ones silently; those that one of 3.1.1 sends are left out and acknowledged, with an error in the log.',
    fallback: 16 * 1024 * 1024,
  }),
  'mqtt.maxBatch': key({
    schema: whole(1, 65_535),
    env: ['MQTT_MAX_BATCH'],
    doc: 'Messages that share one commit, at most.',
    fallback: 500,
  }),
  'mqtt.maxBatchBytes': key({
    schema: whole(1024),
    env: ['MQTT_MAX_BATCH_BYTES'],
    doc: 'Bytes that share one commit, at most; a longer message goes alone.',
    fallback: 8 * 1024 * 1024,
  }),
  'mqtt.maxBatchReads': key({
    schema: whole(1, 1_000_000),
    env: ['MQTT_MAX_BATCH_READS'],
    doc: 'Reads that share one commit, at most; a message with more goes alone.',
    fallback: 2000,
  }),
  'mqtt.stalledAfterSeconds': key({
    schema: whole(1, 86_400),
    env: ['MQTT_STALLED_AFTER_SECONDS'],
    doc: 'A message that waits longer for its commit makes the health of the process `degraded`.',
    fallback: 30,
  }),
  'mqtt.protocol': key<'auto' | '5' | '3.1.1'>({
    schema: z.literal(['auto', '5', '3.1.1']),
    env: ['MQTT_PROTOCOL'],
    doc: '`5`, `3.1.1`, or `auto`: 5, and 3.1.1 where the broker refuses 5.',
    fallback: 'auto',
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
  'mqtt.tlsServerName': key({
    schema: z.string().min(1).nullable(),
    env: ['MQTT_TLS_SERVER_NAME'],
    doc: 'The name in the certificate of the broker, where it is not `mqtt.brokerHost`.',
    fallback: null,
  }),
} as const;

export type IotConfig = ValuesOf<typeof iotKeys>;
