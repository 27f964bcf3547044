import { z } from 'zod';
import { payloadSchema } from '../../events/catalogue.ts';
import type { DomainEvent } from '../../events/read.ts';
import { given } from '../../given.ts';
import { producers, readers } from '../../host/roles.ts';
import { id, pageOf, route, text, timestamp } from '../../host/route.ts';

const eventShape = z.object({
  position: id,
  event_id: z.string(),
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
    response: z.object({
      items: z.array(
        z.object({
          event_type: z.string(),
          summary: z.string(),
          aggregate_type: z.string(),
          payload_schema: z.record(z.string(), z.unknown()),
        }),
      ),
    }),
    handle: async ({ services }) => ({
      items: services.events.types.map((type) => ({
        event_type: type.type,
        summary: type.summary,
        aggregate_type: type.aggregateType,
        payload_schema: payloadSchema(type),
      })),
    }),
  }),
  route({
    method: 'GET',
    url: '/v1/events',
    action: 'events.list',
    summary: 'Events, oldest first; continue with `after=<next_cursor>`, which misses none',
    roles: readers,
    query: z.strictObject({
      after: id.default('0'),
      limit: z.coerce.number().int().min(1).max(1000).default(50),
      type: text(128).optional().describe('`rfid.movement`, or a prefix such as `rfid.*`'),
      aggregate_type: text(128).optional(),
      aggregate_id: text(512).optional(),
    }),
    response: pageOf(eventShape),
    handle: async ({ services, caller, query }) => {
      const { after, limit, type, aggregate_type: aggregateType, aggregate_id: aggregateId } = query;
      const filter = { tenantId: caller.tenantId, ...given({ type, aggregateType, aggregateId }) };
      const found = await services.events.list(filter, { after, limit });
      return { items: found.events.map(eventJson), next_cursor: found.cursor };
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
    handle: async ({ services, caller, body }) => {
      const { eventId, existing } = await services.events.emit({
        type: body.event_type,
        aggregateType: body.aggregate_type,
        aggregateId: body.aggregate_id,
        payload: body.payload,
        tenantId: caller.tenantId,
        ...given({ id: body.event_id, occurredAt: body.occurred_at }),
      });
      return { event_id: eventId, existing };
    },
  }),
];
