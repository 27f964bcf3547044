import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { asTenant, type TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { Logger } from '../../engine/logger.ts';
import { withWorkOutside } from '../../engine/outside-transaction.ts';
import { homeTenant } from '../../host/roles.ts';
import { type AnyRoute, type Caller, calledWith, type Enqueues, Reply, text } from '../../host/route.ts';
import { type ServerDependencies, Services } from '../../host/services.ts';
import { type AuditEvent, type AuditTrail, auditWithin } from '../access/audit.ts';
import { callerAddress } from '../access/caller-network.ts';
import type { HeavyRequests } from '../access/heavy-requests.ts';
import { lineOf } from '../access/lines.ts';
import type { RecentTenants } from '../access/recent-tenants.ts';
import { asHome } from '../access/scope.ts';
import type { Turns } from '../access/turns.ts';
import type { EnqueueRequests } from '../enqueue/enqueue-requests.ts';
import { refusalOf, type Statuses } from './errors.ts';
import { type Gate, RateLimitedError } from './gate.ts';
import { type Answer, digestOf, once } from './idempotency.ts';
import { isWrite, requireJsonAnswer, requireJsonRoute } from './json-answers.ts';
import type { Methods } from './methods.ts';
import { acceptUploads, type UploadMemory } from './uploads.ts';

type RouteAnswer = Answer & { readonly replayed: boolean };
type Handle = Extract<AnyRoute, { readonly enqueues?: undefined }>['handle'];

declare module 'fastify' {
  interface FastifyContextConfig {
    action?: string;
    writes?: boolean;
  }
  interface FastifyRequest {
    caller?: Caller | undefined;
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

/** How long a caller that sends too much waits for the answer that says so. */
const tooManyDelayMs = 200;

/** What stands around each route. */
export interface RouteFrame {
  readonly host: ServerDependencies;
  readonly gate: Gate;
  readonly enqueuing: EnqueueRequests;
  readonly uploads: UploadMemory;
  readonly turns: Turns;
  readonly heavy: HeavyRequests;
  readonly recent: RecentTenants;
}

/** Registers a route with authentication, and runs it in its tenant's transaction. */
export function register(app: FastifyInstance, route: AnyRoute, frame: RouteFrame): void {
  requireJsonRoute(route);
  const { upload } = route;
  if (!upload) return addRoute(app, route, frame);
  // In a context of its own: its bodies are bytes, those of other routes are JSON.
  app.register(async (inner) => {
    acceptUploads(inner, upload, frame);
    addRoute(inner, route, frame);
  });
}

function addRoute(app: FastifyInstance, route: AnyRoute, frame: RouteFrame): void {
  const { host, gate, enqueuing, heavy, recent } = frame;
  const writes = isWrite(route);
  const status = route.status ?? 200;
  app.route({
    method: route.method,
    url: route.url,
    config: { action: route.action, writes },
    schema: {
      operationId: route.action,
      summary: route.summary,
      tags: [route.action.split('.')[0] ?? ''],
      description: audienceOf(route),
      security: route.public ? [{ key: [] }, {}] : [{ key: [] }],
      ...(route.params && { params: route.params }),
      ...(route.query && { querystring: route.query }),
      ...(route.body && { body: route.body }),
      ...(route.consumes && { consumes: ['application/json', ...route.consumes] }),
      ...(route.upload && { body: bytesShape, consumes: [...route.upload.types] }),
      ...(writes && { headers: writeHeaders }),
      response: { [status]: answerShape(route), '4xx': errorShape, '5xx': errorShape },
    },
    // Before the body is read and checked: an unknown caller learns nothing about the route's parameters.
    onRequest: async (request) => {
      if (route.public) {
        request.caller = await gate.admitPublic(request);
        return;
      }
      request.caller = await gate.admit(request);
      recent.note(request.caller.tenantId);
      requireRole(route, request.caller);
    },
    // Params are checked by then: whose page it is depends on them.
    ...(route.public && {
      preHandler: async (request: FastifyRequest) => {
        request.caller = await visitorOf(route, host, request);
      },
    }),
    // The answer is text or bytes: the processor's part is done.
    onSend: (request, reply, content: unknown, done) => {
      heavy.leave(reply.raw);
      if (request.caller && (typeof content === 'string' || content instanceof Uint8Array))
        heavy.answered(lineOf(request.caller), route.action, content.length);
      done();
    },
    handler: async (request, reply) => {
      const { caller } = request;
      if (caller) await heavy.handle({ line: lineOf(caller), response: reply.raw }, route.action);
      try {
        const answer = await (route.enqueues
          ? enqueue(route.enqueues, status, enqueuing, request, () => heavy.leave(reply.raw))
          : answerOf(route, route.handle, status, frame, request));
        if (answer.replayed) reply.header('idempotency-replayed', 'true');
        if (answer.body instanceof Reply) return sendReply(reply, answer.body, answer.status);
        if (answer.body instanceof Readable)
          gate.streamed.open(request.caller as Caller, reply.raw, answer.body);
        if (typeof route.produces === 'string') reply.type(route.produces);
        return reply.code(answer.status).send(answer.status === 204 ? undefined : answer.body);
      } finally {
        heavy.leave(reply.raw);
      }
    },
  });
}

const audienceOf = ({ roles, home, public: open }: AnyRoute): string => {
  if (open) return `For everybody, without a key: ${open.why}.`;
  return `For ${roles.join(', ')}${home ? ` of the tenant "${homeTenant}"` : ''}.`;
};

const answerShape = ({ response, produces, summary }: AnyRoute) =>
  produces === undefined
    ? response
    : {
        description: summary,
        content: Object.fromEntries([produces].flat().map((type) => [type, { schema: response }])),
      };

/** Checked by the parser; here for the documentation. */
const bytesShape = z.unknown().meta({ type: 'string', format: 'binary' });

function sendReply(reply: FastifyReply, { type, body, status, headers }: Reply, usual: number): FastifyReply {
  const content = typeof body === 'string' || body === null ? (body ?? '') : Buffer.from(body);
  return reply
    .code(status ?? usual)
    .headers(headers)
    .type(type)
    .serializer((text: string) => text)
    .send(content);
}

/** Who asks at a public route: a key of the tenant that answers, or anybody. */
async function visitorOf(
  { public: open }: AnyRoute,
  { tallyman: { database } }: ServerDependencies,
  { params, query, body, caller, url }: FastifyRequest,
): Promise<Caller> {
  const tenantId = await open?.tenantOf(database, { params, query, body });
  if (tenantId === undefined)
    throw new TallymanError('NOT_FOUND', `there is nothing at ${url.split('?')[0]}`);
  return caller?.tenantId === tenantId ? caller : { tenantId, role: 'public', access: null, actor: 'public' };
}

const writeHeaders = z.looseObject({
  // In bytes, as its table counts: those of Latin-1 have two in UTF-8.
  'idempotency-key': text(255)
    .max(255)
    .optional()
    .describe(
      'The same key and request again get the first answer; another request with the key is refused.',
    ),
});

function requireRole(route: AnyRoute, caller: Caller): void {
  if (!(route.roles as readonly string[]).includes(caller.role))
    throw new TallymanError('FORBIDDEN', `a key with the role ${caller.role} may not do ${route.action}`);
  if (route.home && caller.tenantId !== homeTenant)
    throw new TallymanError('FORBIDDEN', `${route.action} is for keys of the tenant "${homeTenant}" alone`);
}

/** Shares a transaction with other requests. */
function enqueue(
  enqueues: Enqueues<unknown>,
  status: number,
  enqueuing: EnqueueRequests,
  request: FastifyRequest,
  prepared: () => void,
): Promise<RouteAnswer> {
  const { method, url, body, id: correlationId } = request;
  const key = request.headers['idempotency-key'];
  return enqueuing.handle({
    ...(enqueues.jobs ? { jobs: enqueues.jobs(body) } : { jobs: [], emits: enqueues.event(body) }),
    correlationId,
    prepared,
    event: eventOf(request, { outcome: 'done', status }),
    answer: enqueues.answer,
    idempotency: typeof key === 'string' ? { key, digest: digestOf({ method, url, body }) } : undefined,
  });
}

/** In a transaction of its own, when it is its line's turn. */
async function answerOf(
  route: AnyRoute,
  handle: Handle,
  status: number,
  { host, turns }: RouteFrame,
  request: FastifyRequest,
): Promise<RouteAnswer> {
  const caller = request.caller as Caller;
  const { database } = host.tallyman;
  const answer = async (scope: TenantScope) => {
    const work = async () => {
      const body = await handle({
        caller,
        scope,
        services: new Services(host, scope),
        correlationId: request.id,
        params: request.params,
        query: request.query,
        body: request.body,
        bytes: Buffer.isBuffer(request.body) ? request.body : new Uint8Array(),
        headers: Object.fromEntries(calledWith.map((name) => [name, request.headers[name]])),
      });
      if (isWrite(route)) {
        requireJsonAnswer(route, body);
        await auditWithin(scope, eventOf(request, { outcome: 'done', status, made: idOf(body) }));
      }
      return { status, body };
    };
    const key = request.headers['idempotency-key'];
    if (!isWrite(route) || typeof key !== 'string') return { ...(await work()), replayed: false };
    const { method, url, body } = request;
    const kept = await once(scope, { key, method, url, body }, host.secrets, work);
    // It may show a secret once more, such as a new key.
    if (kept.replayed)
      await auditWithin(
        scope,
        eventOf(request, { outcome: 'done', status: kept.status, code: 'REPLAYED', made: idOf(kept.body) }),
      );
    return kept;
  };
  const longestMs = host.config['server.statementTimeoutMs'];
  const limits = { statementMs: longestMs, idleMs: longestMs };
  return withWorkOutside(() =>
    turns.run(lineOf(caller), () =>
      route.home ? asHome(database, answer, limits) : asTenant(database, caller.tenantId, answer, limits),
    ),
  );
}

/** Of what a write has made, as its answer tells: `id`, or the first one with a longer name, such as `version_id`. */
function idOf(body: unknown): string | undefined {
  const answer = Object.entries(typeof body === 'object' && body !== null ? body : {});
  const [, id] =
    answer.find(([name]) => name === 'id') ?? answer.find(([name]) => name.endsWith('_id')) ?? [];
  return typeof id === 'string' || typeof id === 'number' ? String(id) : undefined;
}

function eventOf(
  request: FastifyRequest,
  what: { outcome: AuditEvent['outcome']; status: number; code?: string; made?: string | undefined },
): AuditEvent {
  const [resource] = Object.values((request.params ?? {}) as Readonly<Record<string, string>>);
  return {
    tenantId: request.caller?.tenantId ?? homeTenant,
    actor: request.caller?.actor ?? 'anonymous',
    action:
      request.routeOptions.config.action ?? `${request.method} ${request.url.split('?')[0]}`.slice(0, 200),
    resource: resourceOf(resource, what.made)?.slice(0, 512) ?? null,
    outcome: what.outcome,
    status: what.status,
    code: what.code ?? null,
    correlationId: request.id,
    address: callerAddress(request),
  };
}

/** What was asked for, and what was made of it or in it: `model-1/version-3`. */
const resourceOf = (asked: string | undefined, made: string | undefined): string | undefined =>
  asked === undefined || made === undefined || made === asked ? (asked ?? made) : `${asked}/${made}`;

/** All errors are sent here, in one shape; refusals and failed writes are audited. */
export function answerErrors(
  app: FastifyInstance,
  {
    logger,
    trail,
    statuses,
    methods,
  }: {
    readonly logger: Logger;
    readonly trail: AuditTrail;
    readonly statuses: Statuses;
    readonly methods: Methods;
  },
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
    else if (refusal.status === 429) reply.header('retry-after', '1');
    if (refusal.status === 401) reply.header('www-authenticate', 'Bearer');
    if (refusal.status !== 429) return sendError(request, reply, refusal);
    // Who asks again at once would keep the event loop busy with refusals.
    setTimeout(() => sendError(request, reply, refusal), tooManyDelayMs);
  });
  app.setNotFoundHandler((request, reply) => {
    const [path = ''] = request.url.split('?');
    const allowed = methods.at(path);
    if (allowed.length === 0)
      return sendError(request, reply, {
        status: 404,
        code: 'NOT_FOUND',
        message: `there is nothing at ${request.method} ${path}`,
      });
    reply.header('allow', allowed.join(', '));
    sendError(request, reply, {
      status: 405,
      code: 'METHOD_NOT_ALLOWED',
      message: `${path} does not take ${request.method}; it takes ${allowed.join(', ')}`,
    });
  });
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
