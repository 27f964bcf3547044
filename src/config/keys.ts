import { isIP } from 'node:net';
import { z } from 'zod';
import { key, optionalUrl, type ValuesOf, whole } from './key.ts';

/** `10.0.0.7`, `fd00::/8`. Not `/0`: to trust every address is to let callers say where they come from. */
function isNetwork(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/');
  const version = isIP(address);
  if (version === 0 || address.includes('%') || rest.length > 0) return false;
  return bits === undefined || (/^[1-9]\d{0,2}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128));
}

/** The keys of engine, server and process. Each app adds its own: `App.config`. */
export const coreKeys = {
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
    doc: 'Work without a heartbeat for this long is recovered, however long its lease.',
    fallback: 120_000,
  }),
  'jobs.recoverIntervalMs': key({
    schema: whole(100, 3_600_000),
    env: ['TALLYMAN_RECOVER_INTERVAL_MS'],
    doc: 'How often every worker looks for expired leases of other workers, in addition to each claim.',
    fallback: 30_000,
  }),
  'jobs.maxAttempts': key({
    schema: whole(1, 1000),
    env: ['TALLYMAN_MAX_ATTEMPTS', 'BPC_JOBS_MAX_ATTEMPTS_DEFAULT'],
    doc: 'Attempts of a job before it becomes a dead letter, unless its kind sets another number.',
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
  'lanes.redisUrl': key({
    schema: optionalUrl('redis:', 'rediss:'),
    env: ['TALLYMAN_REDIS_URL'],
    doc: 'Lane locks in Redis, in addition to the claims in PostgreSQL.',
    fallback: null,
    secret: true,
  }),
  'wakeups.rabbitmq.enabled': key({
    schema: z.boolean(),
    env: ['TALLYMAN_RABBITMQ_ENABLED', 'BPC_QUEUE_ENABLED'],
    doc: 'Wake-ups through RabbitMQ, in addition to LISTEN/NOTIFY.',
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
    doc: 'Log level of a worker, on stderr: `debug`, `info`, `warn`, `error` or `silent`.',
    fallback: 'info',
  }),
  'secrets.key': key({
    schema: z.string().min(43).nullable(),
    env: ['TALLYMAN_SECRET_KEY'],
    doc: 'Master secret, base64 of at least 32 bytes: webhook secrets are sealed and API keys hashed under it. Required with `database.url`; must be the same in every process.',
    fallback: null,
    secret: true,
  }),
  'secrets.otherKeys': key({
    schema: z.string().min(43).nullable(),
    env: ['TALLYMAN_OTHER_SECRET_KEYS'],
    doc: 'More master secrets, separated by commas: what was sealed under them opens, and nothing new is sealed. For a change of `secrets.key` (docs/operating.md).',
    fallback: null,
    secret: true,
  }),
  'secrets.file': key({
    schema: z.string().min(1),
    env: ['TALLYMAN_SECRET_FILE'],
    doc: 'File in which the master secret is generated and kept, if `secrets.key` is not set and the database is the embedded one.',
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
  'server.maxConnections': key({
    schema: whole(1, 1_000_000),
    env: ['TALLYMAN_MAX_CONNECTIONS'],
    doc: 'Connections to the HTTP API that one process keeps open; more are closed at once.',
    fallback: 5_000,
  }),
  'server.trustedProxies': key({
    schema: z
      .string()
      .refine((list) => list.split(',').every(isNetwork), {
        error: 'expected addresses or networks such as 10.0.0.7,fd00::/8, separated by commas',
      })
      .nullable(),
    env: ['TALLYMAN_TRUSTED_PROXIES'],
    doc: 'Proxies before the server, by address or network, separated by commas: of requests from these, `X-Forwarded-For` says where they come from, for the limit of callers without a key and for the audit. The proxy must add the address of its caller to that header.',
    fallback: null,
  }),
  'server.tlsCertFile': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_TLS_CERT_FILE'],
    doc: 'Certificate of the HTTP API, PEM, with its chain: the server speaks https. Read again when it changes.',
    fallback: null,
  }),
  'server.tlsKeyFile': key({
    schema: z.string().min(1).nullable(),
    env: ['TALLYMAN_TLS_KEY_FILE'],
    doc: 'Private key of that certificate, PEM. Read again when it changes.',
    fallback: null,
  }),
  'server.parts': key({
    schema: z.string().regex(/^[a-z]+(,[a-z]+)*$/, { error: 'expected names such as api,worker' }),
    env: ['TALLYMAN_PARTS'],
    doc: 'What `tallyman serve` runs, separated by commas: `api`, `worker`, and apps by name; `all` is everything. `--only` overrides it.',
    fallback: 'all',
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
  'server.uploadMemoryBytes': key({
    schema: whole(1024 * 1024),
    env: ['TALLYMAN_UPLOAD_MEMORY_BYTES'],
    doc: 'Memory that uploads, such as documents, may take at once in one process; those of one tenant no more than they leave free for others. What comes beyond is refused with UPLOADS_BUSY.',
    fallback: 256 * 1024 * 1024,
  }),
  'server.ratePerSecond': key({
    schema: whole(1, 1_000_000),
    env: ['TALLYMAN_RATE_PER_SECOND'],
    doc: 'Requests per second that one API key may make, in all processes together; more are answered with 429.',
    fallback: 100,
  }),
  'server.rateBurst': key({
    schema: whole(1, 1_000_000),
    env: ['TALLYMAN_RATE_BURST'],
    doc: 'Requests that one API key may make at once after a quiet time.',
    fallback: 200,
  }),
  'server.tenantRateFactor': key({
    schema: whole(1, 1_000_000),
    env: ['TALLYMAN_TENANT_RATE_FACTOR'],
    doc: 'How many times `server.ratePerSecond` and `server.rateBurst` all keys of one tenant may use together; more is answered with 429.',
    fallback: 20,
  }),
  'server.tenantConcurrency': key({
    schema: whole(1, 1000),
    env: ['TALLYMAN_TENANT_CONCURRENCY'],
    doc: 'Requests of one tenant that use the database at once, in one process. Others wait for their turn; those of other tenants go on. Beside other tenants one of them may be large. Callers without a key who read its public pages have half as many of their own.',
    fallback: 4,
  }),
  'server.largeRequestsPercent': key({
    schema: whole(1, 100),
    env: ['TALLYMAN_LARGE_REQUESTS_PERCENT'],
    doc: 'While other tenants send requests: share of the time that the large requests of one tenant may take, and each of its turns on the database, in one process. After each one the tenant pauses. 100: no pauses.',
    fallback: 25,
  }),
  'server.tenantWaiting': key({
    schema: whole(0, 100_000),
    env: ['TALLYMAN_TENANT_WAITING'],
    doc: 'Requests of one tenant that may wait for a turn, in one process; more are answered with 429 TENANT_BUSY.',
    fallback: 256,
  }),
  'server.tenantStreams': key({
    schema: whole(1, 100_000),
    env: ['TALLYMAN_TENANT_STREAMS'],
    doc: 'Live streams (`/v1/stream`) that one tenant may keep open, in one process; more are answered with 429 TOO_MANY_STREAMS.',
    fallback: 100,
  }),
  'server.tenantJobs': key({
    schema: whole(0),
    env: ['TALLYMAN_TENANT_JOBS'],
    doc: 'Jobs of one tenant that have not ended, up to which the API enqueues more, within a tenth for each process; then 429 BACKLOG_FULL. 0: no limit.',
    fallback: 10_000_000,
  }),
  'server.tenantSchedules': key({
    schema: whole(0, 1_000_000),
    env: ['TALLYMAN_TENANT_SCHEDULES'],
    doc: 'Schedules of one tenant, up to which the API makes more; then 429 TOO_MANY_SCHEDULES. 0: no limit.',
    fallback: 1_000,
  }),
  'server.maxQueues': key({
    schema: whole(0),
    env: ['TALLYMAN_MAX_QUEUES'],
    doc: 'Queues in all, up to which the API makes new ones by enqueueing; then 429 TOO_MANY_QUEUES. A tenant other than `default` makes at most a quarter of them, in each process. 0: no limit.',
    fallback: 1_000,
  }),
  'server.statementTimeoutMs': key({
    schema: whole(100, 3_600_000),
    env: ['TALLYMAN_STATEMENT_TIMEOUT_MS'],
    doc: 'The longest that one statement of a request may take; then the request is undone and answered with 503 TOO_SLOW.',
    fallback: 30_000,
  }),
  'server.auditSealSeconds': key({
    schema: whole(1, 86_400),
    env: ['TALLYMAN_AUDIT_SEAL_SECONDS'],
    doc: 'How often new audit events are sealed. Until then a change of them goes unnoticed.',
    fallback: 30,
  }),
  'server.auditKeepDays': key({
    schema: whole(0, 36_500),
    env: ['TALLYMAN_AUDIT_KEEP_DAYS'],
    doc: 'How long audit events are kept after they were sealed. 0: for good.',
    fallback: 0,
  }),
  'server.publicMetrics': key({
    schema: z.boolean(),
    env: ['TALLYMAN_PUBLIC_METRICS'],
    doc: 'Answer `/metrics` without an API key.',
    fallback: false,
  }),
  'server.corsOrigins': key({
    schema: z
      .string()
      .regex(/^(\*|https?:\/\/[^/\s,]+(,https?:\/\/[^/\s,]+)*)$/, {
        error: 'expected * or origins such as https://app.example.com,https://ops.example.com',
      })
      .nullable(),
    env: ['TALLYMAN_CORS_ORIGINS'],
    doc: 'Web pages of these origins may call the API from a browser, separated by commas; `*` is every origin. They still need an API key.',
    fallback: null,
  }),
  'health.requireQueue': key({
    schema: z.boolean(),
    env: ['TALLYMAN_HEALTH_REQUIRE_QUEUE', 'BPC_HEALTH_REQUIRE_QUEUE'],
    doc: 'Report not ready (503) while a configured broker is down, instead of degraded.',
    fallback: false,
  }),
} as const;

export type CoreConfig = ValuesOf<typeof coreKeys>;

/** A loaded configuration: the core keys, and those of every app, whose types only the app knows. */
export type Config = CoreConfig & Readonly<Record<string, unknown>>;
