import { Readable } from 'node:stream';
import { z } from 'zod';
import { TenantDatabase } from '../../engine/database/tenant.ts';
import { given } from '../../given.ts';
import type { RouteHost } from '../../host/app.ts';
import { operators, readers } from '../../host/roles.ts';
import { id, page, pageOf, route, text, timestamp } from '../../host/route.ts';
import { listBaskets, listMovements, requireBasket } from './baskets.ts';
import { epcisContentType } from './epcis.ts';
import { epcisExport } from './epcis-export.ts';
import { basketJson, movementJson, plateJson, refusedTagJson, shipmentJson } from './json.ts';
import { listRefusedTags } from './refused-tags.ts';
import { planShipments } from './shipments/plan.ts';
import { shipmentStatuses } from './shipments/reconcile.ts';
import { listShipments, requireShipment } from './shipments/shipments.ts';

const basketShape = z.object({
  id,
  epc: z.string(),
  epc_uri: z.string(),
  location_id: id.nullable(),
  last_device: z.string().nullable(),
  first_seen_at: z.string().nullable(),
  last_seen_at: z.string().nullable(),
});

const movementShape = z.object({
  id,
  basket_id: id,
  epc: z.string(),
  epc_uri: z.string(),
  from_location_id: id.nullable(),
  to_location_id: id,
  device: z.string(),
  at: z.string(),
  repeats: z.int(),
  last_at: z.string().nullable(),
});

const shipmentShape = z.object({
  id,
  number: z.string(),
  status: z.enum(shipmentStatuses),
  created_at: z.string(),
  loading_at: z.string().nullable(),
  shipped_at: z.string().nullable(),
  lines: z.number(),
  loaded_lines: z.number(),
  closed_lines: z.number(),
});

const plateShape = z.object({
  id,
  oblpn: z.string(),
  epc: z.string().nullable(),
  loaded_at: z.string().nullable(),
  loaded_by: z.string().nullable(),
  closed_at: z.string().nullable(),
});

const byEpc = z.strictObject({ epc: text(256) });

export const rfidRoutes = (host: RouteHost) => [
  route({
    method: 'GET',
    url: '/v1/baskets',
    action: 'baskets.list',
    summary: 'Baskets, the newest first',
    roles: readers,
    query: z.strictObject({ ...page, location_id: id.optional() }),
    response: pageOf(basketShape),
    handle: async ({ scope, query: { limit, cursor, location_id } }) => {
      const filter = given({ locationId: location_id });
      const found = await listBaskets(scope, scope.tenantId, filter, given({ limit, cursor }));
      return { items: found.items.map(basketJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/baskets/:epc',
    action: 'baskets.show',
    summary: 'One basket, by its tag, 24 hexadecimal digits',
    roles: readers,
    params: byEpc,
    response: basketShape,
    handle: async ({ scope, params }) => basketJson(await requireBasket(scope, scope.tenantId, params.epc)),
  }),
  route({
    method: 'GET',
    url: '/v1/baskets/:epc/movements',
    action: 'baskets.movements',
    summary: 'Where a basket went, newest first',
    roles: readers,
    params: byEpc,
    query: z.strictObject(page),
    response: pageOf(movementShape),
    handle: async ({ scope, params, query }) => {
      const { id: basketId } = await requireBasket(scope, scope.tenantId, params.epc);
      const found = await listMovements(scope, scope.tenantId, { basketId }, given(query));
      return { items: found.items.map(movementJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/movements',
    action: 'movements.list',
    summary: 'Movements, newest first',
    roles: readers,
    query: z.strictObject({ ...page, from: timestamp.optional(), to: timestamp.optional() }),
    response: pageOf(movementShape),
    handle: async ({ scope, query: { limit, cursor, from, to } }) => {
      const found = await listMovements(scope, scope.tenantId, given({ from, to }), given({ limit, cursor }));
      return { items: found.items.map(movementJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/movements/epcis',
    action: 'movements.epcis',
    summary:
      'All movements as GS1 EPCIS 2.0 ObjectEvents (JSON-LD), in the order they were recorded; go on from `tallyman:nextCursor`',
    roles: readers,
    query: z.strictObject({
      from: z.iso.datetime({ offset: true }).optional(),
      to: z.iso.datetime({ offset: true }).optional(),
      cursor: id.optional().describe('Movements after it: `tallyman:nextCursor` of the document before'),
      limit: z.coerce.number().int().min(1).optional().describe('Default: all there are'),
    }),
    response: z.looseObject({ type: z.literal('EPCISDocument') }),
    produces: epcisContentType,
    // Read page by page while it is sent: its transaction must not stay open as long as a slow client reads.
    handle: async ({ scope: { tenantId }, query }) =>
      Readable.from(
        await epcisExport(new TenantDatabase(host.tallyman.database, tenantId), tenantId, given(query)),
      ),
  }),
  route({
    method: 'GET',
    url: '/v1/refused-tags',
    action: 'refused_tags.list',
    summary: 'Tags that do not count, each with the device that read it and how often, newest first',
    roles: readers,
    query: z.strictObject(page),
    response: pageOf(
      z.object({
        id,
        device: z.string(),
        epc: z.string(),
        reads: z.number(),
        first_at: z.string(),
        last_at: z.string(),
        error: z.string(),
      }),
    ),
    handle: async ({ scope, query }) => {
      const found = await listRefusedTags(scope, scope.tenantId, given(query));
      return { items: found.items.map(refusedTagJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/shipments',
    action: 'shipments.list',
    summary: 'Shipments, newest first',
    roles: readers,
    query: z.strictObject({ ...page, status: z.enum(shipmentStatuses).optional() }),
    response: pageOf(shipmentShape),
    handle: async ({ scope, query: { limit, cursor, status } }) => {
      const found = await listShipments(scope, scope.tenantId, given({ status }), given({ limit, cursor }));
      return { items: found.items.map(shipmentJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/shipments/:number',
    action: 'shipments.show',
    summary: 'One shipment, with its license plates and their baskets',
    roles: readers,
    params: z.strictObject({ number: text(256) }),
    response: shipmentShape.extend({ plates: z.array(plateShape) }),
    handle: async ({ scope, params }) => {
      const { plates, ...shipment } = await requireShipment(scope, scope.tenantId, params.number);
      return { ...shipmentJson(shipment), plates: plates.map(plateJson) };
    },
  }),
  route({
    method: 'POST',
    url: '/v1/shipments',
    action: 'shipments.plan',
    summary: 'Plan a shipment, or add plates to it; as the import from a warehouse system does',
    roles: operators,
    body: z.strictObject({ number: text(200), plates: z.array(text(200)).max(10_000) }),
    response: z.object({ number: z.string(), new_plates: z.number() }),
    handle: async ({ scope, body: { number, plates } }) => ({
      number,
      new_plates: await planShipments(
        scope,
        scope.tenantId,
        plates.map((oblpn) => ({ oblpn, shipment: number })),
      ),
    }),
  }),
];
