import type { Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Config } from '../config/keys.ts';
import { prepareTenants } from '../engine/database/tenant.ts';
import { messageOf, TallymanError } from '../engine/errors.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import type { Logger } from '../engine/logger.ts';
import type { App } from '../host/app.ts';
import { catalogueOf } from '../host/catalogue.ts';
import { componentsOf } from '../host/components.ts';
import type { Runtime } from '../host/process/open.ts';
import { homeTenant, readers } from '../host/roles.ts';
import type { Caller } from '../host/route.ts';
import { isLoopbackHost } from '../network/loopback.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { SecretBox } from '../secrets/box.ts';
import { AuditTrail } from './access/audit.ts';
import { FleetRates } from './access/fleet-rates.ts';
import { ApiKeys, keyIdOf } from './access/keys.ts';
import { sealAudit } from './audit/seals.ts';
import { limitConnections, SilentConnections, UnreadAnswers } from './connections.ts';
import { ReadinessProbe, withoutReasons } from './health.ts';
import { buildApp } from './http/app.ts';
import { Gate } from './http/gate.ts';
import { forgetAnswers } from './http/idempotency.ts';
import { errorShape } from './http/register.ts';
import { type Periodic, periodically } from './periodic.ts';
import { LiveStream } from './stream.ts';
import { type Certificate, CertificateRenewal, loadCertificate, type TlsFiles } from './tls.ts';

export interface ServerOptions {
  readonly apps: readonly App[];
  readonly config: Config;
  readonly runtime: Runtime;
  readonly metrics: Metrics;
  readonly box: SecretBox;
  readonly kinds: readonly AnyKind[];
  readonly version: string;
  readonly logger: Logger;
}

export interface RunningServer {
  readonly app: FastifyInstance;
  /** `http://127.0.0.1:8420` */
  readonly url: string;
  /** Whether callers need a key. */
  readonly locked: boolean;
  stop(): Promise<void>;
}

/** Starts the HTTP API; it is listening when this resolves. */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const { apps, config, runtime, metrics, box } = options;
  const { database } = runtime.tallyman;
  await prepareTenants(database);
  const keys = new ApiKeys(database, box);
  const locked = await keys.haveExisted();
  const host = config['server.host'];
  const isLoopback = isLoopbackHost(host);
  if (!locked && !isLoopback)
    throw new TallymanError(
      'NO_KEYS',
      `There are no API keys, so the server listens on loopback only, not on ${host}. Make one first: tallyman keys create --role admin --name first`,
    );
  const gate = new Gate(keys, {
    ratePerSecond: config['server.ratePerSecond'],
    burst: config['server.rateBurst'],
    tenantFactor: config['server.tenantRateFactor'],
    isLoopback,
  });
  const trail = new AuditTrail(database);
  const stream = new LiveStream(database, (ids) => keys.stillValid(ids));
  const files = tlsFilesOf(config);
  const certificate = files && (await loadCertificate(files));
  const app = await buildApp({
    certificate,
    host: {
      tallyman: runtime.tallyman,
      config,
      secrets: box,
      catalogue: catalogueOf(apps),
      kinds: new Map(options.kinds.map((kind) => [kind.name, kind])),
    },
    apps,
    gate,
    trail,
    maxBodyBytes: config['server.maxBodyBytes'],
    version: options.version,
    extend: (fastify) => {
      addHealth(fastify, options, gate);
      addMetrics(fastify, metrics, gate, config['server.publicMetrics']);
      addStream(fastify, stream, gate, config['server.tenantStreams']);
    },
  });
  const silent = new SilentConnections(app.server);
  const unread = new UnreadAnswers(app.server);
  limitConnections(app.server, config['server.maxConnections'], options.logger);
  try {
    await app.listen({ host, port: config['server.port'] });
  } catch (error) {
    await app.close();
    throw new TallymanError(
      'CANNOT_LISTEN',
      `Cannot listen on ${host}:${config['server.port']}: ${messageOf(error)}`,
      {
        cause: error,
      },
    );
  }
  const background = inBackground(options, { app, gate, unread, files, certificate });
  const { port } = app.server.address() as AddressInfo;
  return {
    app,
    url: `${certificate ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`,
    locked,
    stop: async () => {
      await Promise.all(background.map((each) => each.stop()));
      await stream.stop();
      const closed = app.close();
      silent.end();
      await closed;
      await trail.flushed();
      await gate.noteUse().catch(() => {});
    },
  };
}

/** What the server does besides answering. */
function inBackground(
  { config, runtime, box, logger }: ServerOptions,
  server: {
    readonly app: FastifyInstance;
    readonly gate: Gate;
    readonly unread: UnreadAnswers;
    readonly files: TlsFiles | undefined;
    readonly certificate: Certificate | undefined;
  },
): Periodic[] {
  const { app, gate, unread, files, certificate } = server;
  const { database } = runtime.tallyman;
  const rates = [gate.perKey, gate.perTenant].map((limit) => new FleetRates(database, limit));
  const every = (everyMs: number, trouble: string, work: (signal: AbortSignal) => Promise<unknown>) =>
    periodically({ everyMs, trouble, logger }, work);
  const background = [
    every(60_000, 'cleaning up keys and stored answers failed; trying again', () =>
      Promise.all([forgetAnswers(database), gate.noteUse()]),
    ),
    every(1_000, 'rate limits cannot be shared with other processes; each keeps its last part', () =>
      Promise.all(rates.map((each) => each.share())),
    ),
    every(2_000, 'revoked keys cannot be looked up; streamed answers go on until they can', () =>
      gate.endRevoked(),
    ),
    every(2_000, 'connections whose answers nobody reads cannot be closed', async () => unread.close()),
    every(config['server.auditSealSeconds'] * 1000, 'the audit cannot be sealed; trying again', (signal) =>
      sealAudit(database, box, { keepDays: config['server.auditKeepDays'], signal }),
    ),
  ];
  if (!files || !certificate) return background;
  const renewal = new CertificateRenewal(app.server as unknown as TlsServer, files, certificate, logger);
  const trouble = 'the renewed certificate cannot be used; the server keeps the old one';
  return [...background, every(5_000, trouble, () => renewal.look())];
}

function tlsFilesOf(config: Config): TlsFiles | undefined {
  const [certFile, keyFile] = [config['server.tlsCertFile'], config['server.tlsKeyFile']];
  if (certFile === null && keyFile === null) return undefined;
  if (certFile === null || keyFile === null)
    throw new TallymanError(
      'BAD_CONFIG',
      'server.tlsCertFile and server.tlsKeyFile belong together; only one of them is set',
    );
  return { certFile, keyFile };
}

const readinessShape = z.object({
  status: z.enum(['ready', 'degraded', 'unready']),
  checks: z.record(z.string(), z.object({ status: z.enum(['up', 'down']), reason: z.string().optional() })),
});

/** For probes: they need no key. With the key of a reader the answer says why something is down. */
function addHealth(app: FastifyInstance, { apps, runtime, config }: ServerOptions, gate: Gate): void {
  const readiness = new ReadinessProbe(runtime, componentsOf(apps), config['health.requireQueue']);
  const probe = { tags: ['health'], security: [] };
  app.get(
    '/v1/health/live',
    {
      schema: {
        ...probe,
        operationId: 'health.live',
        summary: 'The process runs',
        response: { 200: z.object({ status: z.literal('ok') }), '4xx': errorShape },
      },
    },
    async () => ({ status: 'ok' as const }),
  );
  app.get(
    '/v1/health/ready',
    {
      // So that a wrong key is in the audit.
      config: { action: 'health.ready' },
      schema: {
        ...probe,
        operationId: 'health.ready',
        summary: 'The process can work: database, migrations, brokers',
        response: { 200: readinessShape, '4xx': errorShape, 503: readinessShape },
      },
    },
    async (request, reply) => {
      const mayRead = await comesFromReader(request, gate);
      const found = await readiness.answer();
      return reply.code(found.status === 'unready' ? 503 : 200).send(mayRead ? found : withoutReasons(found));
    },
  );
}

const isReader = ({ role }: Caller): boolean => (readers as readonly string[]).includes(role);

/** A wrong key is refused; while keys cannot be looked up, the caller gets what everybody gets. */
async function comesFromReader(request: FastifyRequest, gate: Gate): Promise<boolean> {
  if (request.headers.authorization === undefined) return false;
  try {
    return isReader(await gate.admit(request));
  } catch (error) {
    if (error instanceof TallymanError) throw error;
    return false;
  }
}

/** An answer that is not JSON. */
const textOf = (type: string, description: string) => ({
  description,
  content: { [type]: { schema: z.string() } },
});

function addMetrics(app: FastifyInstance, metrics: Metrics, gate: Gate, isPublic: boolean): void {
  app.addHook('onResponse', async (request, reply) => {
    metrics.http(request.method, request.routeOptions.url, reply.statusCode, reply.elapsedTime / 1000);
  });
  app.get(
    '/metrics',
    {
      config: { action: 'metrics.read' },
      schema: {
        tags: ['health'],
        operationId: 'metrics.read',
        summary: 'For Prometheus',
        security: isPublic ? [] : [{ key: [] }],
        response: { 200: textOf('text/plain', 'Metrics'), '4xx': errorShape },
      },
    },
    async (request, reply) => {
      if (!isPublic) {
        const caller = await gate.admit(request);
        if (caller.tenantId !== homeTenant || !isReader(caller))
          throw new TallymanError(
            'FORBIDDEN',
            `/metrics tells of all tenants: it is for keys of "${homeTenant}" alone`,
          );
      }
      return reply
        .type(metrics.contentType)
        .serializer((text: string) => text)
        .send(await metrics.text());
    },
  );
}

function addStream(app: FastifyInstance, stream: LiveStream, gate: Gate, mostOfTenant: number): void {
  app.get(
    '/v1/stream',
    {
      config: { action: 'stream.read' },
      // It would not end.
      exposeHeadRoute: false,
      schema: {
        tags: ['stream'],
        operationId: 'stream.read',
        summary:
          'Server-sent events of this tenant: counts as they change, and its events; `Last-Event-ID` goes on where you were',
        security: [{ key: [] }],
        headers: z.looseObject({
          'last-event-id': z
            .string()
            .optional()
            .describe('The last `id` that you got; without it, events from now on'),
        }),
        response: { 200: textOf('text/event-stream', 'Frames `counts` and `event`'), '4xx': errorShape },
      },
    },
    async (request, reply) => {
      request.caller = await gate.admit(request);
      if (!isReader(request.caller))
        throw new TallymanError(
          'FORBIDDEN',
          `a key with the role ${request.caller.role} may not read the stream`,
        );
      if (stream.clientsOf(request.caller.tenantId) >= mostOfTenant)
        throw new TallymanError(
          'TOO_MANY_STREAMS',
          `this tenant has ${mostOfTenant} live streams open here; close one (\`server.tenantStreams\`)`,
        );
      for (const [name, value] of Object.entries(reply.getHeaders()))
        if (value !== undefined) reply.raw.setHeader(name, value);
      reply.hijack();
      const lastEventId = request.headers['last-event-id'];
      stream.add(
        { tenantId: request.caller.tenantId, keyId: keyIdOf(request.caller) },
        reply.raw,
        typeof lastEventId === 'string' ? lastEventId : undefined,
      );
    },
  );
}
