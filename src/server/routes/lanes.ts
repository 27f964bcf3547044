import { z } from 'zod';
import { TallymanError } from '../../engine/errors.ts';
import type { Lane } from '../../engine/lanes/lanes.ts';
import { given } from '../../given.ts';
import { operators, readers } from '../../host/roles.ts';
import { id, idParams, page, pageOf, route, text } from '../../host/route.ts';
import type { Services } from '../../host/services.ts';
import { laneJson, pageJson, seenBy } from './json.ts';

const laneStates = ['held', 'ready', 'waiting', 'blocked', 'resting'] as const;

const laneShape = z.object({
  id,
  tenant_id: z.string(),
  queue: z.string(),
  key: z.string(),
  policy: z.enum(['block', 'skip']),
  state: z.enum(laneStates),
  pending: z.number(),
  worker: z.string().nullable(),
  due_at: z.string().nullable(),
  blocked_at: z.string().nullable(),
  blocked_by: id.nullable(),
});

async function laneOf(services: Services, laneId: string): Promise<Lane> {
  const lane = await services.lanes.find(laneId);
  if (!lane) throw new TallymanError('NOT_FOUND', `there is no lane ${laneId}`);
  return lane;
}

export const laneRoutes = [
  route({
    method: 'GET',
    url: '/v1/lanes',
    action: 'lanes.list',
    summary: 'Lanes, newest first',
    roles: readers,
    query: z.strictObject({
      ...page,
      queue: text(128).optional(),
      key: text(256).optional(),
      state: z.enum(laneStates).optional(),
    }),
    response: pageOf(laneShape),
    handle: async ({ services, caller, query: { limit, cursor, ...filter } }) => {
      const found = await services.lanes.list(given(filter), given({ limit, cursor }));
      return pageJson(found, seenBy(caller, laneJson));
    },
  }),
  route({
    method: 'GET',
    url: '/v1/lanes/:id',
    action: 'lanes.show',
    summary: 'One lane',
    roles: readers,
    params: idParams,
    response: laneShape,
    handle: async ({ services, params, caller }) =>
      seenBy(caller, laneJson)(await laneOf(services, params.id)),
  }),
  route({
    method: 'POST',
    url: '/v1/lanes/:id/unblock',
    action: 'lanes.unblock',
    summary: 'Let a blocked lane continue after the job that blocked it',
    roles: operators,
    params: idParams,
    status: 204,
    response: z.null(),
    handle: async ({ services, params }) => {
      const { key, queue, tenantId } = await laneOf(services, params.id);
      await services.lanes.unblock(key, { queue, tenantId });
    },
  }),
];
