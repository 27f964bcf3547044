import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { asTenant, type TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { Logger } from '../../engine/logger.ts';
import { homeTenant } from '../../host/roles.ts';
import type { AnyRoute, Caller } from '../../host/route.ts';
import { type ServerDependencies, Services } from '../../host/services.ts';
import { type AuditEvent, type AuditTrail, auditWithin } from '../access/audit.ts';
import { asHome } from '../access/scope.ts';
import { isKeepable } from './body.ts';
import { refusalOf, type Statuses } from './errors.ts';
import { type Gate, RateLimitedError } from './gate.ts';
import { once } from './idempotency.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    action?: string;
    writes?: boolean;
  }
  interface FastifyRequest {
    caller?: Caller;
  }
}

export const errorShape = z.object({
  error: z.object({
    code: z.string(),
    message: z.string(),
    correlation_id: z.string(),
    details: z.unknown().optional(),
  }),
});

/** Registers a route with authentication, and runs it in its tenant's transaction. */
export function register(app: FastifyInstance, route: AnyRoute, host: ServerDependencies, gate: Gate): void {
  const writes = route.method !== 'GET';
  const status = route.status ?? 200;
  app.route({
    method: route.method,
    url: route.url,
    config: { action: route.action, writes },
    schema: {
      operationId: route.action,
      summary: route.summary,
      tags: [route.action.split('.')[0] ?? ''],
      description: `For ${route.roles.join(', ')}${route.home ? ` of the tenant "${homeTenant}"` : ''}.`,
      security: [{ key: [] }],
      ...(route.params && { params: route.params }),
      ...(route.query && { querystring: route.query }),
      ...(route.body && { body: route.body }),
      ...(writes && { headers: writeHeaders }),
      response: { [status]: route.response, '4xx': errorShape, '5xx': errorShape },
    },
    // Before the body is read and checked: an unknown caller learns nothing about the route's parameters.
    onRequest: async (request) => {
      request.caller = await gate.admit(request);
      requireRole(route, request.caller);
    },
    handler: async (request, reply) => {
      const answer = await answerOf(route, status, host, request);
      if (answer.replayed) reply.header('idempotency-replayed', 'true');
      if (route.action === 'keys.create') gate.keyMade();
      if (route.wakes && !answer.replayed) host.tallyman.hint(route.wakes);
      if (route.produces) reply.type(route.produces);
      return reply.code(answer.status).send(answer.status === 204 ? undefined : answer.body);
    },
  });
}

const writeHeaders = z.looseObject({
  'idempotency-key': z
    .string()
    .min(1)
    .max(255)
    .refine(isKeepable, { error: 'holds characters that cannot be kept' })
    .optional()
    .describe(
      'The same key and request again get the first answer; another request with the key is refused.',
    ),
});

function requireRole(route: AnyRoute, caller: Caller): void {
  if (!route.roles.includes(caller.role))
    throw new TallymanError('FORBIDDEN', `a key with the role ${caller.role} may not do ${route.action}`);
  if (route.home && caller.tenantId !== homeTenant)
    throw new TallymanError('FORBIDDEN', `${route.action} is for keys of the tenant "${homeTenant}" alone`);
}

async function answerOf(
  route: AnyRoute,
  status: number,
  host: ServerDependencies,
  request: FastifyRequest,
): Promise<{ status: number; body: unknown; replayed: boolean }> {
  const caller = request.caller as Caller;
  const { database } = host.tallyman;
  const answer = async (scope: TenantScope) => {
    const work = async () => {
      const body = await route.handle({
        caller,
        scope,
        services: new Services(host, scope),
        correlationId: request.id,
        params: request.params,
        query: request.query,
        body: request.body,
      });
      if (route.method !== 'GET') await auditWithin(scope, eventOf(request, { outcome: 'done', status }));
      return { status, body };
    };
    const key = request.headers['idempotency-key'];
    if (route.method === 'GET' || typeof key !== 'string') return { ...(await work()), replayed: false };
    const { method, url, body } = request;
    return once(scope, { key, method, url, body }, host.secrets, work);
  };
  return route.home ? asHome(database, answer) : asTenant(database, caller.tenantId, answer);
}

function eventOf(
  request: FastifyRequest,
  what: { outcome: AuditEvent['outcome']; status: number; code?: string },
): AuditEvent {
  const [resource] = Object.values((request.params ?? {}) as Readonly<Record<string, string>>);
  return {
    tenantId: request.caller?.tenantId ?? homeTenant,
    actor: request.caller?.actor ?? 'anonymous',
    action:
      request.routeOptions.config.action ?? `${request.method} ${request.url.split('?')[0]}`.slice(0, 200),
    resource: resource?.slice(0, 512) ?? null,
    outcome: what.outcome,
    status: what.status,
    code: what.code ?? null,
    correlationId: request.id,
    address: request.ip,
  };
}

/** All errors are sent here, in one shape; refusals and failed writes are audited. */
export function answerErrors(
  app: FastifyInstance,
  {
    logger,
    trail,
    statuses,
  }: { readonly logger: Logger; readonly trail: AuditTrail; readonly statuses: Statuses },
): void {
  app.setErrorHandler((error, request, reply) => {
    const refusal = refusalOf(error, statuses);
    if (refusal.status >= 500)
      logger.error(
        {
          correlationId: request.id,
          method: request.method,
          url: request.url,
          error: (error as Error).stack,
        },
        'a request failed',
      );
    const { action, writes } = request.routeOptions.config;
    const refused = refusal.status === 401 || refusal.status === 403 || refusal.status === 429;
    if (action && (refused || writes))
      trail.note(
        eventOf(request, {
          outcome: refused ? 'refused' : 'failed',
          status: refusal.status,
          code: refusal.code,
        }),
      );
    if (error instanceof RateLimitedError) reply.header('retry-after', String(error.retryAfterS));
    if (refusal.status === 401) reply.header('www-authenticate', 'Bearer');
    sendError(request, reply, refusal);
  });
  app.setNotFoundHandler((request, reply) =>
    sendError(request, reply, {
      status: 404,
      code: 'NOT_FOUND',
      message: `there is nothing at ${request.method} ${request.url.split('?')[0]}`,
    }),
  );
}

export function sendError(
  request: FastifyRequest,
  reply: FastifyReply,
  refusal: { status: number; code: string; message: string; details?: unknown },
): void {
  const { status, ...error } = refusal;
  reply
    .code(status)
    .header('content-type', 'application/json; charset=utf-8')
    .send(JSON.stringify({ error: { ...error, correlation_id: request.id } }));
}
