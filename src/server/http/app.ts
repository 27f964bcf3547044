import { randomUUID } from 'node:crypto';
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import Fastify, { type FastifyInstance } from 'fastify';
import { jsonSchemaTransform, validatorCompiler } from 'fastify-type-provider-zod';
import type { App } from '../../host/app.ts';
import type { ServerDependencies } from '../../host/services.ts';
import type { AuditTrail } from '../access/audit.ts';
import { routesOf } from '../routes/index.ts';
import { acceptCsv, acceptJson, isKeepable } from './body.ts';
import { coreStatuses, refusalOf, type Statuses } from './errors.ts';
import type { Gate } from './gate.ts';
import { answerErrors, register, sendError } from './register.ts';

export interface AppOptions {
  readonly host: ServerDependencies;
  readonly apps: readonly App[];
  readonly gate: Gate;
  readonly trail: AuditTrail;
  readonly maxBodyBytes: number;
  readonly version: string;
  /** Routes that belong to no tenant: health, metrics, the live stream. Added before the rest. */
  readonly extend?: (app: FastifyInstance) => void;
}

/** The HTTP API, not yet listening. */
export async function buildApp(options: AppOptions): Promise<FastifyInstance> {
  const { host, apps, gate, trail } = options;
  const statuses: Statuses = Object.assign({}, coreStatuses, ...apps.map(({ errors }) => errors));
  const app = Fastify({
    bodyLimit: options.maxBodyBytes,
    requestTimeout: 30_000,
    keepAliveTimeout: 65_000,
    // Schemas refuse long params with a message; the router would answer that the route does not exist.
    routerOptions: { maxParamLength: 2_048 },
    genReqId: ({ headers }) => correlationIdOf(headers['x-correlation-id']) ?? randomUUID(),
    frameworkErrors: (error, request, reply) => sendError(request, reply, refusalOf(error, statuses)),
    exposeHeadRoutes: false,
  });
  acceptJson(app);
  acceptCsv(app);
  app.setValidatorCompiler(validatorCompiler);
  // Response schemas are documentation; they are not checked at every request.
  app.setSerializerCompiler(() => (value) => JSON.stringify(value));
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-correlation-id', request.id);
    reply.header('x-content-type-options', 'nosniff');
  });
  answerErrors(app, { logger: host.tallyman.database.logger, trail, statuses });
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Tallyman',
        version: options.version,
        description:
          'What one tenant has: jobs, lanes, queues, dead letters, schedules, and what its apps keep. Lists are newest first, 50 at a time, at ' +
          'most 200; `next_cursor` is the `cursor` of the next page. Writes take an `Idempotency-Key`.',
      },
      components: { securitySchemes: { key: { type: 'http', scheme: 'bearer' } } },
    },
    transform: jsonSchemaTransform,
  });
  await app.register(swaggerUi, {
    routePrefix: '/v1/docs',
    theme: {
      title: 'Tallyman API',
      css: [{ filename: 'theme.css', content: '.swagger-ui .topbar { display: none }' }],
    },
  });
  app.get('/v1/openapi.json', { schema: { hide: true } }, async () => app.swagger());
  options.extend?.(app);
  for (const route of await routesOf(apps, host)) register(app, route, host, gate);
  return app;
}

/** The caller's request id, if it can be stored and printed. */
function correlationIdOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && /^[\x21-\x7e]{1,128}$/.test(header) && isKeepable(header)
    ? header
    : undefined;
}
