import { randomUUID } from 'node:crypto';
import Fastify, { type FastifyInstance } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import { isKeepable } from '../../engine/validate.ts';
import type { App } from '../../host/app.ts';
import type { ServerDependencies } from '../../host/services.ts';
import type { AuditTrail } from '../access/audit.ts';
import { HeavyRequests } from '../access/heavy-requests.ts';
import { turnsOf } from '../access/lines.ts';
import { pausesBesideOthers } from '../access/pauses.ts';
import { RecentTenants } from '../access/recent-tenants.ts';
import { Turns } from '../access/turns.ts';
import { EnqueueRequests } from '../enqueue/enqueue-requests.ts';
import { routesOf } from '../routes/index.ts';
import { type Certificate, minVersion } from '../tls.ts';
import { acceptBodies } from './body.ts';
import { allowOrigins } from './cors.ts';
import { addDocumentation } from './documentation.ts';
import { coreStatuses, refusalOf, type Statuses } from './errors.ts';
import type { Gate } from './gate.ts';
import { Methods } from './methods.ts';
import { answerErrors, register, sendError } from './register.ts';
import { UploadMemory } from './uploads.ts';

export interface AppOptions {
  readonly host: ServerDependencies;
  readonly apps: readonly App[];
  readonly gate: Gate;
  readonly trail: AuditTrail;
  readonly maxBodyBytes: number;
  readonly version: string;
  /** Without it the server speaks http. */
  readonly certificate?: Certificate | undefined;
  /** Routes that belong to no tenant: health, metrics, the live stream. Added before the rest. */
  readonly extend?: (app: FastifyInstance) => void;
}

/** With every answer. Answers are data: a browser that shows one runs nothing of it. The pages have a policy of their own. */
const securityHeaders = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
} as const;

/** The HTTP API, not yet listening. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const { host, apps, gate, trail } = options;
  const statuses: Statuses = Object.assign({}, coreStatuses, ...apps.map(({ errors }) => errors));
  const app: FastifyInstance = Fastify({
    ...(options.certificate && { https: { ...options.certificate, minVersion, handshakeTimeout: 10_000 } }),
    bodyLimit: options.maxBodyBytes,
    trustProxy: host.config['server.trustedProxies']?.split(',') ?? false,
    requestTimeout: 30_000,
    keepAliveTimeout: 65_000,
    // Schemas refuse long params with a message; the router would answer that the route does not exist.
    routerOptions: { maxParamLength: 2_048 },
    genReqId: ({ headers }) => correlationIdOf(headers['x-correlation-id']) ?? randomUUID(),
    frameworkErrors: (error, request, reply) => sendError(request, reply, refusalOf(error, statuses)),
    exposeHeadRoutes: true,
  });
  const methods = new Methods(app);
  const recent = new RecentTenants();
  const perTenant = host.config['server.tenantConcurrency'];
  const waiting = host.config['server.tenantWaiting'];
  const percent = host.config['server.largeRequestsPercent'];
  const heavy = new HeavyRequests(recent, { atOnce: perTenant, waiting, percent });
  acceptBodies(app, heavy);
  app.setValidatorCompiler(validatorCompiler);
  // Response schemas are documentation; they are not checked at every request.
  app.setSerializerCompiler(() => (value) => JSON.stringify(value));
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-correlation-id', request.id);
    reply.headers(securityHeaders);
  });
  allowOrigins(app, host.config['server.corsOrigins']?.split(',') ?? [], methods);
  answerErrors(app, { logger: host.tallyman.database.logger, trail, statuses, methods });
  await addDocumentation(app, { gate, version: options.version });
  options.extend?.(app);
  const enqueuing = new EnqueueRequests(host, recent);
  app.addHook('onClose', () => enqueuing.close());
  const uploads = new UploadMemory(host.config['server.uploadMemoryBytes']);
  const turns = new Turns({
    // Two connections stay for what is not a request: workers, keys, health.
    total: Math.max(1, host.config['database.poolSize'] - 2),
    perTenant: (line) => turnsOf(line, perTenant),
    waiting,
    pauseMs: pausesBesideOthers(recent, percent),
  });
  for (const route of await routesOf(apps, host))
    register(app, route, { host, gate, enqueuing, uploads, turns, heavy, recent });
  return app;
}

/** The caller's request id, if it can be stored and printed. */
function correlationIdOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && /^[\x21-\x7e]{1,128}$/.test(header) && isKeepable(header)
    ? header
    : undefined;
}
