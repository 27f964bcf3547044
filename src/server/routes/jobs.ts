import { z } from 'zod';
import { TallymanError } from '../../engine/errors.ts';
import { jobStatuses } from '../../engine/jobs/jobs.ts';
import { given } from '../../given.ts';
import { anyone, operators, producers, readers } from '../../host/roles.ts';
import { id, idParams, page, pageOf, route, text, timestamp } from '../../host/route.ts';
import { jobJson, pageJson, seenBy } from './json.ts';
import { seenJobs } from './seen-jobs.ts';

export const jobError = z
  .object({
    code: z.string(),
    message: z.string(),
    attempt: z.number(),
    at: z.string(),
    worker: z.string().nullable(),
  })
  .nullable();

const jobShape = z.object({
  id,
  tenant_id: z.string(),
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

const existing = z.boolean();

export const jobRoutes = [
  route({
    method: 'POST',
    url: '/v1/jobs',
    action: 'jobs.enqueue',
    summary: 'Enqueue a job',
    roles: producers,
    body: newJob,
    status: 201,
    response: z.object({
      id,
      existing: existing.describe('True: the dedupe key was taken, the id is the first job’s'),
    }),
    enqueues: {
      jobs: (body) => [body],
      answer: ([enqueued]) => ({ id: enqueued?.id, existing: enqueued?.existing }),
    },
  }),
  route({
    method: 'POST',
    url: '/v1/jobs/batch',
    action: 'jobs.enqueue_many',
    summary: 'Enqueue many jobs: all of them or none',
    roles: producers,
    body: z.strictObject({ jobs: z.array(newJob).min(1).max(1000) }),
    status: 201,
    response: z.object({
      ids: z.array(id).describe('In the order of the jobs'),
      existing: z
        .array(existing)
        .describe('For each, whether its dedupe key was taken; the id is the first job’s then'),
    }),
    enqueues: {
      jobs: ({ jobs }) => jobs,
      answer: (enqueued) => ({
        ids: enqueued.map(({ id }) => id),
        existing: enqueued.map(({ existing }) => existing),
      }),
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
    handle: async (call) => {
      const { limit, cursor, correlation_id: correlationId, ...filter } = call.query;
      const found = await call.services.jobs.list(
        given({ ...filter, correlationId }),
        given({ limit, cursor }),
      );
      return pageJson({ ...found, items: await seenJobs(call, found.items) }, seenBy(call.caller, jobJson));
    },
  }),
  route({
    method: 'GET',
    url: '/v1/jobs/counts',
    action: 'jobs.counts',
    summary: 'How many jobs there are in each state',
    roles: readers,
    response: z.object(Object.fromEntries(jobStatuses.map((status) => [status, z.number()]))),
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
    handle: async (call) => {
      const { id } = call.params;
      const found = await call.services.jobs.get(id);
      const [job] = found ? await seenJobs(call, [found]) : [];
      if (!job) throw new TallymanError('NOT_FOUND', `there is no job ${id}`);
      return seenBy(call.caller, jobJson)(job);
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
