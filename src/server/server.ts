import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
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
import type { Metrics } from '../observability/metrics.ts';
import type { SecretBox } from '../secrets/box.ts';
import { AuditTrail } from './access/audit.ts';
import { ApiKeys } from './access/keys.ts';
import { readiness } from './health.ts';
import { buildApp } from './http/app.ts';
import { Gate } from './http/gate.ts';
import { forgetAnswers } from './http/idempotency.ts';
import { LiveStream } from './stream.ts';

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

const housekeepingMs = 60_000;
const loopback = new Set(['127.0.0.1', '::1', 'localhost']);

/** Starts the HTTP API; it is listening when this resolves. */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const { apps, config, runtime, metrics, box, logger } = options;
  const { database } = runtime.tallyman;
  await prepareTenants(database);
  const keys = new ApiKeys(database, box);
  const locked = await keys.any();
  const host = config['server.host'];
  if (!locked && !loopback.has(host))
    throw new TallymanError(
      'NO_KEYS',
      `There are no API keys, so the server listens on loopback only, not on ${host}. Make one first: tallyman keys create --role admin --name first`,
    );
  const gate = new Gate(keys, {
    ratePerSecond: config['server.ratePerSecond'],
    burst: config['server.rateBurst'],
  });
  const trail = new AuditTrail(database);
  const stream = new LiveStream(database);
  const app = await buildApp({
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
      addHealth(fastify, options);
      addMetrics(fastify, metrics, gate, config['server.publicMetrics']);
      addStream(fastify, stream, gate);
    },
  });
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
  const housekeeping = setInterval(() => {
    Promise.all([forgetAnswers(database), gate.noteUse()]).catch((error) =>
      logger.warn({ error: messageOf(error) }, 'cleaning up keys and stored answers failed; trying again'),
    );
  }, housekeepingMs);
  const { port } = app.server.address() as AddressInfo;
  return {
    app,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    locked,
    stop: async () => {
      clearInterval(housekeeping);
      stream.stop();
      await app.close();
      await trail.flushed();
      await gate.noteUse().catch(() => {});
    },
  };
}

function addHealth(app: FastifyInstance, { apps, runtime, config }: ServerOptions): void {
  const tags = ['health'];
  app.get('/v1/health/live', { schema: { tags, summary: 'The process runs' } }, async () => ({
    status: 'ok',
  }));
  app.get(
    '/v1/health/ready',
    { schema: { tags, summary: 'The process can work: database, migrations, brokers' } },
    async (_, reply) => {
      const found = await readiness(runtime, componentsOf(apps), config['health.requireQueue']);
      return reply.code(found.status === 'unready' ? 503 : 200).send(found);
    },
  );
}

function addMetrics(app: FastifyInstance, metrics: Metrics, gate: Gate, isPublic: boolean): void {
  app.addHook('onResponse', async (request, reply) => {
    metrics.http(request.method, request.routeOptions.url, reply.statusCode, reply.elapsedTime / 1000);
  });
  app.get(
    '/metrics',
    { config: { action: 'metrics.read' }, schema: { tags: ['health'], summary: 'For Prometheus' } },
    async (request, reply) => {
      if (!isPublic) {
        const caller = await gate.admit(request);
        if (caller.tenantId !== homeTenant || !readers.includes(caller.role))
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

function addStream(app: FastifyInstance, stream: LiveStream, gate: Gate): void {
  app.get(
    '/v1/stream',
    {
      config: { action: 'stream.read' },
      schema: {
        tags: ['stream'],
        summary:
          'Server-sent events of this tenant: counts as they change, and its events; `Last-Event-ID` goes on where you were',
        response: { 200: z.string() },
      },
    },
    async (request, reply) => {
      request.caller = await gate.admit(request);
      if (!readers.includes(request.caller.role))
        throw new TallymanError(
          'FORBIDDEN',
          `a key with the role ${request.caller.role} may not read the stream`,
        );
      reply.hijack();
      const lastEventId = request.headers['last-event-id'];
      stream.add(
        request.caller.tenantId,
        reply.raw,
        typeof lastEventId === 'string' ? lastEventId : undefined,
      );
    },
  );
}
