import { z } from 'zod';
import type { TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import { given } from '../../given.ts';
import { operators, readers } from '../../host/roles.ts';
import { type AnyRoute, page, pageOf, route } from '../../host/route.ts';
import {
  attemptJson,
  attemptShape,
  deliveryJson,
  deliveryQuery,
  deliveryShape,
  sent,
  sentJson,
} from './shapes.ts';
import type { Webhooks } from './webhooks.ts';

const deliveryParams = z.strictObject({ id: z.uuid() });

/** Deliveries of all endpoints of a tenant. */
export const deliveryRoutes = (webhooksOf: (scope: TenantScope) => Webhooks): readonly AnyRoute[] => [
  route({
    method: 'GET',
    url: '/v1/deliveries',
    action: 'webhooks.deliveries.list',
    summary: 'Deliveries to all endpoints, newest first, with their state and the time of the next attempt',
    roles: readers,
    query: z.strictObject({ ...page, ...deliveryQuery }),
    response: pageOf(deliveryShape),
    handle: async ({ scope, query }) => {
      const { limit, cursor, state, from, to } = query;
      const { endpoint_id: endpointId, event_id: eventId, event_type: eventType } = query;
      const found = await webhooksOf(scope).deliveries(
        given({ endpointId, eventId, eventType, state, from, to }),
        given({ limit, cursor }),
      );
      return { items: found.items.map(deliveryJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/deliveries/:id',
    action: 'webhooks.deliveries.show',
    summary: 'One delivery',
    roles: readers,
    params: deliveryParams,
    response: deliveryShape,
    handle: async ({ scope, params }) => {
      const delivery = await webhooksOf(scope).delivery(params.id);
      if (!delivery) throw new TallymanError('NOT_FOUND', `there is no delivery ${params.id}`);
      return deliveryJson(delivery);
    },
  }),
  route({
    method: 'GET',
    url: '/v1/deliveries/:id/attempts',
    action: 'webhooks.deliveries.attempts',
    summary: 'The attempts of one delivery, newest first, with what the receiver answered',
    roles: readers,
    params: deliveryParams,
    query: z.strictObject(page),
    response: pageOf(attemptShape),
    handle: async ({ scope, params, query }) => {
      const webhooks = webhooksOf(scope);
      if (!(await webhooks.delivery(params.id)))
        throw new TallymanError('NOT_FOUND', `there is no delivery ${params.id}`);
      const found = await webhooks.attempts({ deliveryId: params.id }, given(query));
      return { items: found.items.map(attemptJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'POST',
    url: '/v1/deliveries/:id/redeliver',
    action: 'webhooks.redeliver',
    summary: 'Send one delivery again',
    roles: operators,
    params: deliveryParams,
    status: 202,
    response: sent,
    handle: async ({ scope, params }) => sentJson(await webhooksOf(scope).redeliver(params.id)),
  }),
];
