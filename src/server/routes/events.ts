import { z } from 'zod';
import { TallymanError } from '../../engine/errors.ts';
import { pageByName } from '../../engine/paging.ts';
import type { DomainEvent } from '../../events/read.ts';
import { given } from '../../given.ts';
import { producers, readers } from '../../host/roles.ts';
import { id, pageByNames, pageOf, route, text, timestamp } from '../../host/route.ts';
import { eventTypeJson, pageJson } from './json.ts';

const eventShape = z.object({
  position: id,
  event_id: z.string(),
  tenant_id: z.string(),
  event_type: z.string(),
  aggregate_type: z.string(),
  aggregate_id: z.string(),
  occurred_at: z.string(),
  created_at: z.string(),
  payload: z.unknown(),
});

/** An event as the API and the live stream show it. */
export const eventJson = (event: DomainEvent) => ({
  position: event.position,
  event_id: event.id,
  tenant_id: event.tenantId,
  event_type: event.type,
  aggregate_type: event.aggregateType,
  aggregate_id: event.aggregateId,
  occurred_at: event.occurredAt,
  created_at: event.createdAt,
  payload: event.payload,
});

export const eventRoutes = [
  route({
    method: 'GET',
    url: '/v1/event-types',
    action: 'events.types',
    summary: 'Every event that Tallyman emits, with the JSON Schema of its payload',
    roles: readers,
    query: z.strictObject(pageByNames),
    response: pageOf(
      z.object({
        event_type: z.string(),
        summary: z.string(),
        aggregate_type: z.string(),
        payload_schema: z.record(z.string(), z.unknown()),
      }),
    ),
    handle: async ({ services, query }) =>
      pageJson(
        pageByName(services.events.types, ({ type }) => type, given(query)),
        eventTypeJson,
      ),
  }),
  route({
    method: 'GET',
    url: '/v1/events',
    action: 'events.list',
    summary: 'Events, oldest first; continue with `cursor=<next_cursor>`, which misses none',
    roles: readers,
    query: z.strictObject({
      cursor: id.optional().describe('`next_cursor` of the page before; it is never null: new events follow'),
      after: id.default('0').describe('The same under its former name'),
      limit: z.coerce.number().int().min(1).max(1000).default(50),
      type: text(128).optional().describe('`rfid.movement`, or a prefix such as `rfid.*`'),
      aggregate_type: text(128).optional(),
      aggregate_id: text(512).optional(),
    }),
    response: pageOf(eventShape),
    handle: async ({ services, caller, query }) => {
      const {
        after,
        cursor = after,
        limit,
        type,
        aggregate_type: aggregateType,
        aggregate_id: aggregateId,
      } = query;
      const filter = { tenantId: caller.tenantId, ...given({ type, aggregateType, aggregateId }) };
      const found = await services.events.list(filter, { after: cursor, limit });
      return { items: found.events.map(eventJson), next_cursor: found.cursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/events/:id',
    action: 'events.show',
    summary: 'One event, by its id (`evt_4711`, or the one that its emitter gave)',
    roles: readers,
    params: z.strictObject({ id: text(128) }),
    response: eventShape,
    handle: async ({ services, caller, params }) => {
      const event = await services.events.get(params.id, { tenantId: caller.tenantId });
      if (!event) throw new TallymanError('NOT_FOUND', `there is no event ${params.id}`);
      return eventJson(event);
    },
  }),
  route({
    method: 'POST',
    url: '/v1/events',
    action: 'events.emit',
    summary: 'Emit an event of your own; endpoints that subscribe to its type get it',
    roles: producers,
    body: z.strictObject({
      event_type: text(128),
      aggregate_type: text(128),
      aggregate_id: text(512),
      payload: z.unknown().default({}),
      event_id: text(128).optional().describe('The same id again does nothing'),
      occurred_at: timestamp.optional(),
    }),
    status: 202,
    response: z.object({ event_id: z.string(), existing: z.boolean() }),
    enqueues: {
      event: (body) => ({
        type: body.event_type,
        aggregateType: body.aggregate_type,
        aggregateId: body.aggregate_id,
        payload: body.payload,
        ...given({ id: body.event_id, occurredAt: body.occurred_at }),
      }),
      answer: ([emitted]) => ({ event_id: emitted?.id, existing: emitted?.existing }),
    },
  }),
];
