import { z } from 'zod';

/**
 * Every key there is, documented once. `tallyman config` prints this; `docs/configuration.md` is made from it.
 * A key is read from the configuration file (as a path of nested objects), from its environment variable, and from
 * aliases that operators of such systems already have. The environment wins over the file, the first name listed
 * over the ones behind it.
 */
export interface Key<T> {
  readonly schema: z.ZodType<T>;
  readonly env: readonly string[];
  readonly doc: string;
  readonly fallback: T;
  /** Printed as `…`. */
  readonly secret?: boolean;
  /** Environment values are in other units than the key. */
  readonly scale?: Readonly<Record<string, number>>;
}

const key = <T>(definition: Key<T>): Key<T> => definition;

const whole = (min: number, max = Number.MAX_SAFE_INTEGER) => z.int().min(min).max(max);
const optionalUrl = (...protocols: string[]) =>
  z
    .string()
    .refine((text) => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
      error: `expected an address that begins with ${protocols.map((p) => `${p}//`).join(' or ')}`,
    })
    .nullable();

export const keys = {
  'database.url': key({
    schema: optionalUrl('postgres:', 'postgresql:'),
    env: ['DATABASE_URL', 'TALLYMAN_DATABASE_URL'],
    doc: 'PostgreSQL 15 to 18. Without it an embedded PostgreSQL runs under `database.dataDir`.',
    fallback: null,
    secret: true,
  }),
  'database.dataDir': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_DATA_DIR'],
    doc: 'Where the embedded PostgreSQL keeps its data.',
    fallback: '.tallyman/postgres',
  }),
  'database.poolSize': key({
    schema: whole(2, 1000),
    env: ['TALLYMAN_POOL_SIZE'],
    doc: 'Connections that workers, enqueues and queries of one process share.',
    fallback: 10,
  }),
  'jobs.concurrency': key({
    schema: whole(1, 10_000),
    env: ['TALLYMAN_CONCURRENCY'],
    doc: 'Jobs and lanes a worker runs at once.',
    fallback: 10,
  }),
  'jobs.pollIntervalMs': key({
    schema: whole(10, 3_600_000),
    env: ['TALLYMAN_POLL_INTERVAL_MS', 'BPC_JOBS_POLL_INTERVAL_MS'],
    doc: 'How often a worker looks for work, whatever the wake-ups do.',
    fallback: 1000,
  }),
  'jobs.leaseMs': key({
    schema: whole(1000, 86_400_000),
    env: ['TALLYMAN_LEASE_MS', 'BPC_JOBS_LEASE_SECONDS'],
    scale: { BPC_JOBS_LEASE_SECONDS: 1000 },
    doc: 'How long a claim holds without a heartbeat.',
    fallback: 60_000,
  }),
  'jobs.renewMs': key({
    schema: whole(100, 86_400_000),
    env: ['TALLYMAN_RENEW_MS', 'BPC_JOBS_LEASE_RENEW_SECONDS'],
    scale: { BPC_JOBS_LEASE_RENEW_SECONDS: 1000 },
    doc: 'How often leases are renewed. Must be below `jobs.leaseMs`.',
    fallback: 30_000,
  }),
  'jobs.stuckAfterMs': key({
    schema: whole(1000, 86_400_000),
    env: ['TALLYMAN_STUCK_AFTER_MS'],
    doc: 'Work without a heartbeat for so long is taken back, however long its lease.',
    fallback: 120_000,
  }),
  'jobs.recoverIntervalMs': key({
    schema: whole(100, 3_600_000),
    env: ['TALLYMAN_RECOVER_INTERVAL_MS'],
    doc: 'How often every worker looks for expired leases of others, beside each claim.',
    fallback: 30_000,
  }),
  'jobs.maxAttempts': key({
    schema: whole(1, 1000),
    env: ['TALLYMAN_MAX_ATTEMPTS', 'BPC_JOBS_MAX_ATTEMPTS_DEFAULT'],
    doc: 'Attempts of a job before it becomes a dead letter, where its kind does not say.',
    fallback: 5,
  }),
  'jobs.maxPayloadBytes': key({
    schema: whole(2, 256 * 1024 * 1024),
    env: ['TALLYMAN_MAX_PAYLOAD_BYTES'],
    doc: 'The largest payload an enqueue accepts.',
    fallback: 1024 * 1024,
  }),
  'jobs.stopTimeoutMs': key({
    schema: whole(0, 3_600_000),
    env: ['TALLYMAN_STOP_TIMEOUT_MS'],
    doc: 'How long a stopping worker waits for running handlers before it hands their jobs back.',
    fallback: 30_000,
  }),
  'retention.keepMs': key({
    schema: whole(0),
    env: ['TALLYMAN_RETENTION_MS'],
    doc: 'How long finished jobs are kept. 0: successes leave no row.',
    fallback: 7 * 24 * 3_600_000,
  }),
  'retention.rawReadsMs': key({
    schema: whole(3_600_000),
    env: ['TALLYMAN_RETENTION_RAW_READS_MS'],
    doc: 'How long tag reads are kept as they came, to be replayed. What replay has not been through is kept longer.',
    fallback: 30 * 24 * 3_600_000,
  }),
  'retention.readsMs': key({
    schema: whole(3_600_000),
    env: ['TALLYMAN_RETENTION_READS_MS'],
    doc: 'How long it is known which tag reads were processed. Must not be below `retention.rawReadsMs`: a read that can be replayed has to be recognised.',
    fallback: 90 * 24 * 3_600_000,
  }),
  'lanes.redisUrl': key({
    schema: optionalUrl('redis:', 'rediss:'),
    env: ['TALLYMAN_REDIS_URL'],
    doc: 'Lane locks in Redis beside the claims in PostgreSQL.',
    fallback: null,
    secret: true,
  }),
  'wakeups.rabbitmq.enabled': key({
    schema: z.boolean(),
    env: ['TALLYMAN_RABBITMQ_ENABLED', 'BPC_QUEUE_ENABLED'],
    doc: 'Wake-ups through RabbitMQ, beside LISTEN/NOTIFY.',
    fallback: false,
  }),
  'wakeups.rabbitmq.url': key({
    schema: optionalUrl('amqp:', 'amqps:'),
    env: ['TALLYMAN_RABBITMQ_URL', 'BPC_QUEUE_URL'],
    doc: 'Address of RabbitMQ.',
    fallback: null,
    secret: true,
  }),
  'wakeups.rabbitmq.exchange': key({
    schema: z.string().min(1).max(255),
    env: ['TALLYMAN_RABBITMQ_EXCHANGE', 'BPC_QUEUE_EXCHANGE'],
    doc: 'Exchange that carries the wake-ups.',
    fallback: 'bpc',
  }),
  'wakeups.rabbitmq.routingKey': key({
    schema: z.string().min(1).max(255),
    env: ['TALLYMAN_RABBITMQ_ROUTING_KEY', 'BPC_QUEUE_ROUTING_KEY'],
    doc: 'Routing key of the wake-ups.',
    fallback: 'jobs.trigger',
  }),
  'wakeups.nats.servers': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_NATS_SERVERS'],
    doc: 'Wake-ups through NATS; addresses separated by commas.',
    fallback: null,
    secret: true,
  }),
  'log.level': key<'debug' | 'info' | 'warn' | 'error' | 'silent'>({
    schema: z.enum(['debug', 'info', 'warn', 'error', 'silent']),
    env: ['TALLYMAN_LOG_LEVEL'],
    doc: 'How much a worker says on stderr: `debug`, `info`, `warn`, `error` or `silent`.',
    fallback: 'info',
  }),
  'secrets.key': key({
    schema: z.string().min(43).nullable(),
    env: ['TALLYMAN_SECRET_KEY'],
    doc: 'Master secret, base64 of at least 32 bytes: webhook secrets are sealed and API keys hashed under it. Needed with `database.url`; the same in every process.',
    fallback: null,
    secret: true,
  }),
  'secrets.file': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_SECRET_FILE'],
    doc: 'Where the master secret is made and kept when `secrets.key` is not set and the database is the embedded one.',
    fallback: '.tallyman/secret.key',
  }),
  'server.host': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_HOST'],
    doc: 'Where `tallyman serve` listens. Anything but loopback needs an API key to exist first.',
    fallback: '127.0.0.1',
  }),
  'server.port': key({
    schema: whole(0, 65_535),
    env: ['TALLYMAN_PORT', 'PORT'],
    doc: 'Port of the HTTP API; 0 takes any free one.',
    fallback: 8420,
  }),
  'server.parts': key({
    schema: z.string().regex(/^[a-z]+(,[a-z]+)*$/, { error: 'expected names such as api,worker,intake' }),
    env: ['TALLYMAN_PARTS'],
    doc: 'What `tallyman serve` runs, separated by commas: `api`, `worker`, `webhooks`, `intake`, `labels`. `--only` overrides it.',
    fallback: 'api,worker,webhooks,intake,labels',
  }),
  'server.kinds': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_KINDS'],
    doc: 'Module that exports the kinds the worker of `tallyman serve` runs.',
    fallback: null,
  }),
  'server.maxBodyBytes': key({
    schema: whole(1024, 256 * 1024 * 1024),
    env: ['TALLYMAN_MAX_BODY_BYTES'],
    doc: 'The largest request body the API accepts.',
    fallback: 2 * 1024 * 1024,
  }),
  'server.ratePerSecond': key({
    schema: whole(1, 1_000_000),
    env: ['TALLYMAN_RATE_PER_SECOND'],
    doc: 'Requests a second that one API key may make, in one process; beyond it the answer is 429.',
    fallback: 100,
  }),
  'server.rateBurst': key({
    schema: whole(1, 1_000_000),
    env: ['TALLYMAN_RATE_BURST'],
    doc: 'Requests that one API key may make at once after a quiet time.',
    fallback: 200,
  }),
  'server.publicMetrics': key({
    schema: z.boolean(),
    env: ['TALLYMAN_PUBLIC_METRICS'],
    doc: 'Answer `/metrics` without an API key.',
    fallback: false,
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
    doc: 'Tells the instances of one environment apart, such as a StatefulSet ordinal. Default: the host name.',
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
    doc: 'How long the broker keeps messages for an instance that is away.',
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
  'replay.intervalMs': key({
    schema: whole(0, 86_400_000),
    env: ['TALLYMAN_REPLAY_INTERVAL_MS'],
    doc: 'How often the part `intake` looks for tag reads in `iot.tag_reads` that nobody has processed. 0: only after the broker lost our session.',
    fallback: 60_000,
  }),
  'wms.url': key({
    schema: optionalUrl('http:', 'https:'),
    env: ['TALLYMAN_WMS_URL'],
    doc: 'Warehouse system to fetch outbound license plates from, by the part `intake`. Without it none are fetched.',
    fallback: null,
  }),
  'wms.authorization': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_WMS_AUTHORIZATION'],
    doc: 'What it is sent as `Authorization`, such as `Bearer …`.',
    fallback: null,
    secret: true,
  }),
  'wms.cron': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_WMS_CRON'],
    doc: 'When plates are fetched: a cron expression, in UTC.',
    fallback: '*/5 * * * *',
  }),
  'wms.tenantId': key({
    schema: z.string().min(1).max(100),
    env: ['TALLYMAN_WMS_TENANT'],
    doc: 'Whose shipments they are.',
    fallback: 'default',
  }),
  'webhooks.concurrency': key({
    schema: whole(1, 10_000),
    env: ['TALLYMAN_WEBHOOKS_CONCURRENCY'],
    doc: 'Webhook deliveries that one process has under way at once.',
    fallback: 50,
  }),
  'webhooks.requireHttps': key({
    schema: z.boolean(),
    env: ['TALLYMAN_WEBHOOKS_REQUIRE_HTTPS'],
    doc: 'Refuse webhook endpoints whose address is not https.',
    fallback: true,
  }),
  'webhooks.allowPrivateAddresses': key<boolean | string>({
    schema: z.union([
      z.boolean(),
      z.string().regex(/^[0-9a-fA-F:.]+\/\d{1,3}(,[0-9a-fA-F:.]+\/\d{1,3})*$/, {
        error: 'expected true, false, or networks such as 10.1.0.0/16,fd00::/8',
      }),
    ]),
    env: ['TALLYMAN_WEBHOOKS_ALLOW_PRIVATE'],
    doc: 'Let webhooks go to private, loopback and link-local addresses: `true`, or the networks that may be reached, separated by commas.',
    fallback: false,
  }),
  'labels.concurrency': key({
    schema: whole(1, 10_000),
    env: ['TALLYMAN_LABELS_CONCURRENCY'],
    doc: 'Labels that one process brings images to at once.',
    fallback: 20,
  }),
  'labels.askAfterMs': key({
    schema: whole(0, 3_600_000),
    env: ['TALLYMAN_LABELS_ASK_AFTER_MS'],
    doc: 'How long after a push its gateway is first asked whether the label shows it.',
    fallback: 2000,
  }),
  'labels.askIntervalMs': key({
    schema: whole(100, 3_600_000),
    env: ['TALLYMAN_LABELS_ASK_INTERVAL_MS'],
    doc: 'How often a process looks for labels about which their gateway is due to be asked.',
    fallback: 2000,
  }),
  'labels.driftCron': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_LABELS_DRIFT_CRON'],
    doc: 'When everything that labels should show is compared with what their gateways say: a cron expression, in UTC.',
    fallback: '*/10 * * * *',
  }),
  'health.requireQueue': key({
    schema: z.boolean(),
    env: ['TALLYMAN_HEALTH_REQUIRE_QUEUE', 'BPC_HEALTH_REQUIRE_QUEUE'],
    doc: 'Not ready (503) while a configured broker is away, instead of degraded.',
    fallback: false,
  }),
} as const;

export type KeyName = keyof typeof keys;
export type Config = { readonly [K in KeyName]: (typeof keys)[K] extends Key<infer T> ? T : never };
