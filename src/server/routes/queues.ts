import { z } from 'zod';
import { TallymanError } from '../../engine/errors.ts';
import { pageByName } from '../../engine/paging.ts';
import { given } from '../../given.ts';
import { operators, readers } from '../../host/roles.ts';
import { pageByNames, pageOf, route, text } from '../../host/route.ts';
import { pageJson, queueJson } from './json.ts';

const queueShape = z.object({
  name: z.string(),
  paused_at: z.string().nullable(),
  max_running: z.number().nullable(),
  rate_per_second: z.number().nullable(),
  rate_burst: z.number().nullable(),
  ready: z.number(),
  running: z.number(),
  waiting: z.number(),
  oldest_ready_at: z.string().nullable(),
});

const byName = z.strictObject({ name: text(128) });
const limit = (schema: z.ZodType<number>) =>
  schema.nullable().optional().describe('null takes the limit away');

export const queueRoutes = [
  route({
    method: 'GET',
    url: '/v1/queues',
    action: 'queues.list',
    summary: "Queues by name, with the counts of this tenant's jobs",
    roles: readers,
    query: z.strictObject(pageByNames),
    response: pageOf(queueShape),
    handle: async ({ services, query }) =>
      pageJson(
        pageByName(await services.queues.list(), ({ name }) => name, given(query)),
        queueJson,
      ),
  }),
  route({
    method: 'GET',
    url: '/v1/queues/:name',
    action: 'queues.show',
    summary: 'One queue',
    roles: readers,
    params: byName,
    response: queueShape,
    handle: async ({ services, params }) => {
      const queue = (await services.queues.list()).find(({ name }) => name === params.name);
      if (!queue) throw new TallymanError('NOT_FOUND', `there is no queue "${params.name}"`);
      return queueJson(queue);
    },
  }),
  // All tenants share queues: a pause stops a queue for all of them.
  route({
    method: 'POST',
    url: '/v1/queues/:name/pause',
    action: 'queues.pause',
    summary: 'Stop claims from it; running jobs continue. The queue is created if there is none',
    roles: operators,
    home: true,
    params: byName,
    status: 204,
    response: z.null(),
    handle: async ({ services, params }) => {
      await services.queues.pause(params.name);
    },
  }),
  route({
    method: 'POST',
    url: '/v1/queues/:name/resume',
    action: 'queues.resume',
    summary: 'Workers claim from it again',
    roles: operators,
    home: true,
    params: byName,
    status: 204,
    response: z.null(),
    handle: ({ services, params }) => services.queues.resume(params.name),
  }),
  route({
    method: 'PATCH',
    url: '/v1/queues/:name',
    action: 'queues.configure',
    summary: 'Limits over the whole fleet; the queue is created if there is none',
    roles: operators,
    home: true,
    params: byName,
    body: z.strictObject({
      max_running: limit(z.int().min(1).max(2_147_483_647)),
      rate_per_second: limit(z.number().positive().max(1e9)),
      rate_burst: limit(z.number().min(1).max(1e9)),
    }),
    status: 204,
    response: z.null(),
    handle: ({ services, params, body }) =>
      services.queues.configure(
        params.name,
        given({
          maxRunning: body.max_running,
          ratePerSecond: body.rate_per_second,
          rateBurst: body.rate_burst,
        }),
      ),
  }),
];
