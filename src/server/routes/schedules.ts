import { z } from 'zod';
import { TallymanError } from '../../engine/errors.ts';
import { requirePublic } from '../../engine/jobs/internal-kinds.ts';
import type { Priority } from '../../engine/jobs/kind.ts';
import type { Schedule } from '../../engine/schedules/schedules.ts';
import { given } from '../../given.ts';
import { operators, readers } from '../../host/roles.ts';
import { id, pageByNames, pageOf, route, text } from '../../host/route.ts';
import type { Services } from '../../host/services.ts';
import { limitsOf } from '../enqueue/tenant-limits.ts';
import { pageJson, scheduleJson } from './json.ts';

const scheduleShape = z.object({
  name: z.string(),
  tenant_id: z.string(),
  cron: z.string(),
  timezone: z.string(),
  kind: z.string(),
  payload: z.unknown(),
  queue: z.string().nullable().describe("Null: the kind's"),
  priority: z.number().nullable(),
  lane: z.string().nullable(),
  max_attempts: z.number().nullable(),
  enabled: z.boolean(),
  next_run_at: z.string(),
  last_run_at: z.string().nullable(),
  last_job_id: id.nullable(),
});

const byName = z.strictObject({ name: text(200) });

async function scheduleOf(
  services: Services,
  { tenantId }: { readonly tenantId: string },
  name: string,
): Promise<Schedule> {
  const found = await services.schedules.get(name, tenantId);
  if (!found) throw new TallymanError('NOT_FOUND', `there is no schedule "${name}"`);
  return found;
}

export const scheduleRoutes = [
  route({
    method: 'GET',
    url: '/v1/schedules',
    action: 'schedules.list',
    summary: 'Schedules by name',
    roles: readers,
    query: z.strictObject(pageByNames),
    response: pageOf(scheduleShape),
    handle: async ({ services, caller, query }) =>
      pageJson(await services.schedules.page(caller.tenantId, given(query)), scheduleJson),
  }),
  route({
    method: 'GET',
    url: '/v1/schedules/:name',
    action: 'schedules.show',
    summary: 'One schedule',
    roles: readers,
    params: byName,
    response: scheduleShape,
    handle: async ({ services, caller, params }) =>
      scheduleJson(await scheduleOf(services, caller, params.name)),
  }),
  route({
    method: 'PUT',
    url: '/v1/schedules/:name',
    action: 'schedules.put',
    summary: 'Make a schedule, or change it; a paused one stays paused',
    roles: operators,
    params: byName,
    body: z.strictObject({
      cron: text(256),
      timezone: text(64).default('UTC'),
      kind: text(128),
      payload: z.unknown().default({}),
      queue: text(128).optional(),
      priority: z.int().min(0).max(3).optional(),
      lane: text(256).optional(),
      max_attempts: z.int().min(1).max(1000).optional(),
    }),
    response: scheduleShape,
    handle: async ({ services, scope, caller, params, body }) => {
      const { cron, timezone, payload, queue, lane } = body;
      await requirePublic(scope, services.host.kinds, body.kind);
      const kind = services.host.kinds.get(body.kind) ?? body.kind;
      const options = given({
        queue,
        lane,
        priority: body.priority as Priority | undefined,
        maxAttempts: body.max_attempts,
      });
      const { tenantId } = caller;
      // Its runs make the queue.
      if (queue !== undefined) await limitsOf(services.host).admitQueues(tenantId, [queue], scope);
      return scheduleJson(
        await services.schedules.upsert({
          name: params.name,
          cron,
          timezone,
          kind,
          payload,
          tenantId,
          ...options,
        }),
      );
    },
  }),
  route({
    method: 'POST',
    url: '/v1/schedules/:name/pause',
    action: 'schedules.pause',
    summary: 'Enqueue nothing until it is resumed',
    roles: operators,
    params: byName,
    status: 204,
    response: z.null(),
    handle: async ({ services, caller, params }) => {
      await scheduleOf(services, caller, params.name);
      if (!(await services.schedules.pause(params.name, caller.tenantId)))
        throw new TallymanError('BAD_STATE', `schedule "${params.name}" is paused already`);
    },
  }),
  route({
    method: 'POST',
    url: '/v1/schedules/:name/resume',
    action: 'schedules.resume',
    summary: 'Continue with the next due time',
    roles: operators,
    params: byName,
    status: 204,
    response: z.null(),
    handle: async ({ services, caller, params }) => {
      await scheduleOf(services, caller, params.name);
      if (!(await services.schedules.resume(params.name, caller.tenantId)))
        throw new TallymanError('BAD_STATE', `schedule "${params.name}" is not paused`);
    },
  }),
  route({
    method: 'DELETE',
    url: '/v1/schedules/:name',
    action: 'schedules.remove',
    summary: 'Remove it; jobs it has enqueued stay',
    roles: operators,
    params: byName,
    status: 204,
    response: z.null(),
    handle: async ({ services, caller, params }) => {
      if (!(await services.schedules.remove(params.name, caller.tenantId)))
        throw new TallymanError('NOT_FOUND', `there is no schedule "${params.name}"`);
    },
  }),
];
