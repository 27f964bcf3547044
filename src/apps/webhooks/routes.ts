import { z } from 'zod';
import type { TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import { given } from '../../given.ts';
import { type RouteHost, settingsOf } from '../../host/app.ts';
import { operators, readers } from '../../host/roles.ts';
import { type AnyRoute, idParams, page, pageOf, route, text, timestamp } from '../../host/route.ts';
import { webhooksKeys } from './config.ts';
import { addressPolicy } from './configured.ts';
import { deliveryRoutes } from './delivery-routes.ts';
import { redeliverPart } from './redelivery.ts';
import { mostAtOnce, redeliverKind } from './redelivery-kind.ts';
import {
  attemptJson,
  attemptShape,
  endpointJson,
  endpointShape,
  optionShapes,
  sent,
  sentJson,
} from './shapes.ts';
import { Webhooks } from './webhooks.ts';

const settings = {
  url: text(2048),
  description: z.string().max(500).optional(),
  event_types: z.array(text(128)).min(1).max(100).optional().describe('`*` is everything, `job.*` a prefix'),
  ordered: z.boolean().optional().describe('Events of one aggregate arrive one after another'),
  timeout_ms: z.int().min(1).max(2_147_483_647).optional(),
  max_attempts: z.int().min(1).max(1000).optional(),
  retry_delays_s: z.array(z.int().min(0).max(2_147_483_647)).min(1).max(100).nullable().optional(),
  ...optionShapes,
};

const ownSecret = text(256)
  .optional()
  .describe('A secret of your own: 8 to 256 bytes of text. Default: one is made');

type Settings = z.output<z.ZodObject<{ [K in Exclude<keyof typeof settings, 'url'>]: (typeof settings)[K] }>>;

const toSettings = (body: Settings) =>
  given({
    description: body.description,
    eventTypes: body.event_types,
    ordered: body.ordered,
    timeoutMs: body.timeout_ms,
    maxAttempts: body.max_attempts,
    retryDelays: body.retry_delays_s,
    filter:
      body.filter === undefined
        ? undefined
        : (body.filter ?? []).map(({ path, ...rest }) => ({ path, ...given(rest) })),
    headers: body.headers,
    ed25519: body.ed25519,
  });

export function webhookRoutes({ config, secrets, tallyman }: RouteHost): readonly AnyRoute[] {
  const settingsOfWebhooks = settingsOf(webhooksKeys, config);
  const policy = addressPolicy(settingsOfWebhooks);
  const maxEndpoints = settingsOfWebhooks['webhooks.maxEndpoints'];
  const webhooksOf = (scope: TenantScope): Webhooks =>
    new Webhooks(scope, { box: secrets, policy, maxEndpoints });
  return [
    route({
      method: 'GET',
      url: '/v1/webhooks',
      action: 'webhooks.list',
      summary: 'Endpoints, newest first',
      roles: readers,
      query: z.strictObject(page),
      response: pageOf(endpointShape),
      handle: async ({ scope, query }) => {
        const found = await webhooksOf(scope).list({}, given(query));
        return { items: found.items.map(endpointJson), next_cursor: found.nextCursor };
      },
    }),
    route({
      method: 'POST',
      url: '/v1/webhooks',
      action: 'webhooks.add',
      summary: 'Add an endpoint; its secret is in this answer and nowhere else',
      roles: operators,
      body: z.strictObject({ ...settings, secret: ownSecret }),
      status: 201,
      response: endpointShape.extend({ secret: z.string() }),
      handle: async ({ scope, caller, body }) => {
        const { endpoint, secret } = await webhooksOf(scope).add({
          url: body.url,
          tenantId: caller.tenantId,
          ...toSettings(body),
          ...given({ secret: body.secret }),
        });
        return { ...endpointJson(endpoint), secret };
      },
    }),
    route({
      method: 'GET',
      url: '/v1/webhooks/:id',
      action: 'webhooks.show',
      summary: 'One endpoint',
      roles: readers,
      params: idParams,
      response: endpointShape,
      handle: async ({ scope, params }) => {
        const endpoint = await webhooksOf(scope).get(params.id);
        if (!endpoint) throw new TallymanError('NOT_FOUND', `there is no webhook endpoint ${params.id}`);
        return endpointJson(endpoint);
      },
    }),
    route({
      method: 'PATCH',
      url: '/v1/webhooks/:id',
      action: 'webhooks.change',
      summary: 'Change an endpoint; what is not named stays',
      roles: operators,
      params: idParams,
      body: z.strictObject({ ...settings, url: settings.url.optional(), enabled: z.boolean().optional() }),
      response: endpointShape,
      handle: async ({ scope, params, body }) => {
        const changes = { ...toSettings(body), ...given({ url: body.url }) };
        let endpoint = await webhooksOf(scope).update(params.id, changes);
        if (body.enabled === true) endpoint = await webhooksOf(scope).enable(params.id);
        if (body.enabled === false) endpoint = await webhooksOf(scope).disable(params.id);
        return endpointJson(endpoint);
      },
    }),
    route({
      method: 'DELETE',
      url: '/v1/webhooks/:id',
      action: 'webhooks.remove',
      summary: 'Remove an endpoint; what is on its way to it is given up',
      roles: operators,
      params: idParams,
      status: 204,
      response: z.null(),
      handle: ({ scope, params }) => webhooksOf(scope).remove(params.id),
    }),
    route({
      method: 'POST',
      url: '/v1/webhooks/:id/rotate',
      action: 'webhooks.rotate',
      summary: 'A new secret, shown once, or a new key pair; the old one signs as well for a time',
      roles: operators,
      params: idParams,
      body: z
        .strictObject({
          keep_old_for_s: z
            .int()
            .min(0)
            .max(365 * 86_400)
            .optional()
            .describe('Default a day'),
          what: z
            .enum(['secret', 'key'])
            .optional()
            .describe('`key`: the key pair of Ed25519. Default `secret`'),
          secret: ownSecret,
        })
        .nullish(),
      response: z.object({ secret: z.string().optional(), public_key: z.string().optional() }),
      handle: async ({ scope, params, body }) => {
        const { keep_old_for_s: keepOldForS, what = 'secret', secret } = body ?? {};
        const options = given({ keepOldForMs: keepOldForS === undefined ? undefined : keepOldForS * 1000 });
        if (what === 'secret')
          return { secret: await webhooksOf(scope).rotate(params.id, { ...options, ...given({ secret }) }) };
        if (secret !== undefined)
          throw new TallymanError('BAD_OPTION', 'a key pair is made here; leave "secret" out');
        return { public_key: await webhooksOf(scope).rotateKey(params.id, options) };
      },
    }),
    route({
      method: 'POST',
      url: '/v1/webhooks/:id/ping',
      action: 'webhooks.ping',
      summary: 'Send a `webhook.ping` the way every delivery goes',
      roles: operators,
      params: idParams,
      status: 202,
      response: sent,
      handle: async ({ scope, params }) => sentJson(await webhooksOf(scope).ping(params.id)),
    }),
    route({
      method: 'GET',
      url: '/v1/webhooks/:id/deliveries',
      action: 'webhooks.deliveries',
      summary: 'Attempts to deliver to this endpoint, newest first',
      roles: readers,
      params: idParams,
      query: z.strictObject({
        ...page,
        status: z.enum(['SUCCEEDED', 'FAILED']).optional(),
        event_id: text(128).optional(),
        delivery_id: z.uuid().optional(),
      }),
      response: pageOf(attemptShape),
      handle: async ({ scope, params, query: { limit, cursor, status, event_id, delivery_id } }) => {
        if (!(await webhooksOf(scope).get(params.id)))
          throw new TallymanError('NOT_FOUND', `there is no webhook endpoint ${params.id}`);
        const found = await webhooksOf(scope).attempts(
          { endpointId: params.id, ...given({ status, eventId: event_id, deliveryId: delivery_id }) },
          given({ limit, cursor }),
        );
        return { items: found.items.map(attemptJson), next_cursor: found.nextCursor };
      },
    }),
    route({
      method: 'POST',
      url: '/v1/webhooks/:id/redeliver',
      action: 'webhooks.redeliver_range',
      summary: 'Send the events of a time range again, by default those that never arrived',
      roles: operators,
      params: idParams,
      body: z.strictObject({
        from: timestamp,
        to: timestamp.optional(),
        only_failed: z.boolean().optional(),
      }),
      status: 202,
      response: z.object({
        redelivered: z.number(),
        job_id: z.string().nullable().describe('Sends the rest of a range with more than 1,000 events'),
      }),
      handle: async ({ scope, params, body }) => {
        const { from, to = new Date(), only_failed: onlyFailed = true } = body;
        const range = { endpointId: params.id, from, to, onlyFailed };
        const { redelivered, next } = await redeliverPart(scope, range, { after: '0', limit: mostAtOnce });
        if (next === undefined) return { redelivered, job_id: null };
        const rest = { ...range, from: from.toISOString(), to: to.toISOString(), after: next };
        const { id } = await tallyman.enqueue(redeliverKind, rest, { tx: scope, tenantId: scope.tenantId });
        return { redelivered, job_id: id };
      },
    }),
    ...deliveryRoutes(webhooksOf),
  ];
}
