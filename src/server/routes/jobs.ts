import { z } from 'zod';
import type { TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import { internalKind } from '../../engine/jobs/internal-kinds.ts';
import { type Job, jobStatuses } from '../../engine/jobs/jobs.ts';
import { check } from '../../engine/jobs/standard-schema.ts';
import { enqueue as enqueueAny, enqueuePublic } from '../../engine/sql/enqueue.ts';
import { milliseconds } from '../../engine/sql/sql-function.ts';
import { given } from '../../given.ts';
import { anyone, operators, producers, readers } from '../../host/roles.ts';
import { id, idParams, page, pageOf, route, text, timestamp } from '../../host/route.ts';
import type { ServerDependencies } from '../../host/services.ts';

export const jobError = z
  .object({
    code: z.string(),
    message: z.string(),
    attempt: z.number(),
    at: z.string(),
    worker: z.string().nullable(),
  })
  .nullable();

export const jobShape = z.object({
  id,
  status: z.enum(jobStatuses),
  queue: z.string(),
  kind: z.string(),
  priority: z.number(),
  lane: z.string().nullable(),
  seq: z.string().nullable(),
  payload: z.unknown(),
  attempts: z.number(),
  max_attempts: z.number(),
  correlation_id: z.string(),
  dedupe_key: z.string().nullable(),
  created_at: z.string(),
  scheduled_at: z.string(),
  finished_at: z.string().nullable(),
  last_error: jobError,
});

const toJson = (job: Job) => ({
  id: job.id,
  status: job.status,
  queue: job.queue,
  kind: job.kind,
  priority: job.priority,
  lane: job.lane,
  seq: job.seq,
  payload: job.payload,
  attempts: job.attempts,
  max_attempts: job.maxAttempts,
  correlation_id: job.correlationId,
  dedupe_key: job.dedupeKey,
  created_at: job.createdAt,
  scheduled_at: job.scheduledAt,
  finished_at: job.finishedAt,
  last_error: job.lastError,
});

const newJob = z
  .strictObject({
    kind: text(128),
    payload: z.unknown().default({}),
    queue: text(128).optional(),
    priority: z.int().min(0).max(3).optional().describe('0 critical, 1 high, 2 normal, 3 low'),
    lane: text(256).optional(),
    delay_ms: z.number().min(0).max(3.2e11).optional(),
    scheduled_at: timestamp.optional(),
    dedupe_key: text(512).optional(),
    max_attempts: z.int().min(1).max(1000).optional(),
    correlation_id: text(256).optional(),
    latest_only: z.boolean().optional(),
  })
  .refine((job) => job.delay_ms === undefined || job.scheduled_at === undefined, {
    error: 'give delay_ms or scheduled_at, not both',
    path: ['delay_ms'],
  });

type NewJob = z.output<typeof newJob>;

export const jobRoutes = [
  route({
    method: 'POST',
    url: '/v1/jobs',
    action: 'jobs.enqueue',
    summary: 'Enqueue a job',
    roles: producers,
    body: newJob,
    status: 201,
    response: z.object({ id }),
    handle: async ({ services, scope, body, correlationId }) => ({
      id: await enqueue(services.host, scope, body, correlationId),
    }),
  }),
  route({
    method: 'POST',
    url: '/v1/jobs/batch',
    action: 'jobs.enqueue_many',
    summary: 'Enqueue many jobs: all of them or none',
    roles: producers,
    body: z.strictObject({ jobs: z.array(newJob).min(1).max(1000) }),
    status: 201,
    response: z.object({ ids: z.array(id) }),
    handle: async ({ services, scope, body, correlationId }) => {
      const ids: string[] = [];
      for (const job of body.jobs) ids.push(await enqueue(services.host, scope, job, correlationId));
      return { ids };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/jobs',
    action: 'jobs.list',
    summary: 'Jobs, newest first',
    roles: anyone,
    query: z.strictObject({
      ...page,
      status: z.enum(jobStatuses).optional(),
      queue: text(128).optional(),
      kind: text(128).optional(),
      lane: text(256).optional(),
      correlation_id: text(256).optional(),
    }),
    response: pageOf(jobShape),
    handle: async ({ services, query }) => {
      const { limit, cursor, correlation_id: correlationId, ...filter } = query;
      const found = await services.jobs.list(given({ ...filter, correlationId }), given({ limit, cursor }));
      return { items: found.items.map(toJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/jobs/counts',
    action: 'jobs.counts',
    summary: 'How many jobs there are in each state',
    roles: readers,
    response: z.record(z.enum(jobStatuses), z.number()),
    handle: ({ services }) => services.jobs.counts(),
  }),
  route({
    method: 'GET',
    url: '/v1/jobs/:id',
    action: 'jobs.show',
    summary: 'One job',
    roles: anyone,
    params: idParams,
    response: jobShape,
    handle: async ({ services, params }) => {
      const job = await services.jobs.get(params.id);
      if (!job) throw new TallymanError('NOT_FOUND', `there is no job ${params.id}`);
      return toJson(job);
    },
  }),
  route({
    method: 'POST',
    url: '/v1/jobs/:id/cancel',
    action: 'jobs.cancel',
    summary: 'End a job that has not ended, also a running one',
    roles: operators,
    params: idParams,
    body: z.strictObject({ reason: text(500).optional() }).nullish(),
    status: 204,
    response: z.null(),
    handle: ({ services, params, body }) => services.jobs.cancel(params.id, body?.reason),
  }),
  route({
    method: 'POST',
    url: '/v1/jobs/:id/retry',
    action: 'jobs.retry',
    summary: 'Run a failed, cancelled or dead job again; run a waiting one now',
    roles: operators,
    params: idParams,
    status: 204,
    response: z.null(),
    handle: ({ services, params }) => services.jobs.retry(params.id),
  }),
];

/**
 * Through the SQL function, in the tenant's transaction, in one statement, unless the kind is internal. If this process
 * knows the kind, its definition decides whether it is public, and the payload is checked.
 */
async function enqueue(
  host: ServerDependencies,
  scope: TenantScope,
  job: NewJob,
  correlationId: string,
): Promise<string> {
  const kind = host.kinds.get(job.kind);
  if (kind && !kind.isPublic) throw internalKind(job.kind);
  let { payload } = job;
  if (kind?.schema) {
    const checked = await check(kind.schema, payload);
    if (!checked.ok) {
      const path = ['body.payload', checked.path].filter(Boolean).join('.');
      throw new TallymanError('VALIDATION_ERROR', `${path}: ${checked.problem}`, {
        details: { fields: [{ path, message: checked.problem }] },
      });
    }
    payload = checked.value;
  }
  const args = {
    kind: job.kind,
    payload: JSON.stringify(payload ?? null),
    queue: job.queue,
    priority: job.priority,
    lane: job.lane ?? kind?.laneKey?.(payload),
    delay: job.delay_ms === undefined ? undefined : milliseconds(job.delay_ms),
    scheduledAt: job.scheduled_at?.toISOString(),
    dedupeKey: job.dedupe_key,
    tenantId: scope.tenantId,
    maxAttempts: job.max_attempts,
    correlationId: job.correlation_id ?? correlationId,
    latestOnly: job.latest_only,
  };
  const maxPayloadBytes = host.config['jobs.maxPayloadBytes'];
  // A kind whose definition is here is public: that was checked above.
  const id = await (kind ? enqueueAny : enqueuePublic)(scope, args, { maxPayloadBytes });
  if (id === undefined) throw internalKind(job.kind);
  return id;
}
