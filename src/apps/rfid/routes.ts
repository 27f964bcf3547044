import { z } from 'zod';
import { given } from '../../given.ts';
import { operators, producers, readers } from '../../host/roles.ts';
import { id, page, pageOf, route, text, timestamp } from '../../host/route.ts';
import {
  type Device,
  listDevices,
  listLocations,
  putDevice,
  putLocation,
  storeCameraReads,
} from '../iot/index.ts';
import { type Basket, listBaskets, listMovements, type Movement, requireBasket } from './baskets.ts';
import { epcisDocument, readMovements } from './epcis.ts';
import { listShipments, requireShipment, type Shipment, type ShipmentLine } from './shipments/shipments.ts';

const locationShape = z.object({ id, name: z.string() });

const deviceShape = z.object({
  id,
  serial: z.string(),
  name: z.string(),
  location_id: id.nullable(),
  role: z.string(),
});

const deviceJson = (device: Device) => ({
  id: device.id,
  serial: device.serial,
  name: device.name,
  location_id: device.locationId,
  role: device.role,
});

const basketShape = z.object({
  id,
  epc: z.string(),
  epc_uri: z.string(),
  location_id: id.nullable(),
  last_device: z.string().nullable(),
  first_seen_at: z.string().nullable(),
  last_seen_at: z.string().nullable(),
});

const basketJson = (basket: Basket) => ({
  id: basket.id,
  epc: basket.epcHex,
  epc_uri: basket.epcUri,
  location_id: basket.locationId,
  last_device: basket.lastDeviceId,
  first_seen_at: basket.firstSeenAt,
  last_seen_at: basket.lastSeenAt,
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
});

const movementJson = (movement: Movement) => ({
  id: movement.id,
  basket_id: movement.basketId,
  epc: movement.epcHex,
  epc_uri: movement.epcUri,
  from_location_id: movement.fromLocationId,
  to_location_id: movement.toLocationId,
  device: movement.deviceId,
  at: movement.at,
});

const shipmentStatuses = ['PLANNED', 'LOADING', 'SHIPPED'] as const;

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

const shipmentJson = (shipment: Shipment) => ({
  id: shipment.id,
  number: shipment.number,
  status: shipment.status,
  created_at: shipment.createdAt,
  loading_at: shipment.loadingAt,
  shipped_at: shipment.shippedAt,
  lines: shipment.lines,
  loaded_lines: shipment.loadedLines,
  closed_lines: shipment.closedLines,
});

const plateShape = z.object({
  id,
  oblpn: z.string(),
  epc: z.string().nullable(),
  loaded_at: z.string().nullable(),
  loaded_by: z.string().nullable(),
  closed_at: z.string().nullable(),
});

const plateJson = (line: ShipmentLine) => ({
  id: line.id,
  oblpn: line.oblpn,
  epc: line.epcHex,
  loaded_at: line.loadedAt,
  loaded_by: line.loadedBy,
  closed_at: line.closedAt,
});

const byEpc = z.strictObject({ epc: text(256) });

export const rfidRoutes = [
  route({
    method: 'GET',
    url: '/v1/locations',
    action: 'locations.list',
    summary: 'Places where devices stand',
    roles: readers,
    response: z.object({ items: z.array(locationShape) }),
    handle: async ({ scope }) => ({
      items: (await listLocations(scope, scope.tenantId)).map(({ id, name }) => ({ id, name })),
    }),
  }),
  route({
    method: 'POST',
    url: '/v1/locations',
    action: 'locations.put',
    summary: 'Make a place, or find the one of that name',
    roles: operators,
    body: z.strictObject({ name: text(256) }),
    response: locationShape,
    handle: async ({ scope, body }) => {
      const { id, name } = await putLocation(scope, scope.tenantId, body.name);
      return { id, name };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/devices',
    action: 'devices.list',
    summary: 'Readers and cameras, by serial',
    roles: readers,
    response: z.object({ items: z.array(deviceShape) }),
    handle: async ({ scope }) => ({ items: (await listDevices(scope, scope.tenantId)).map(deviceJson) }),
  }),
  route({
    method: 'PUT',
    url: '/v1/devices/:serial',
    action: 'devices.put',
    summary: 'Make a device, or change it; reads are judged by it from the next moment on',
    roles: operators,
    params: z.strictObject({ serial: text(256) }),
    body: z.strictObject({
      name: text(256).optional(),
      location_id: id.nullable().optional(),
      role: text(64).optional().describe('Such as dock-door, return-door, camera'),
    }),
    response: deviceShape,
    handle: async ({ scope, params, body }) =>
      deviceJson(
        await putDevice(scope, {
          tenantId: scope.tenantId,
          serial: params.serial,
          ...given({ name: body.name, locationId: body.location_id, role: body.role }),
        }),
      ),
  }),
  route({
    method: 'POST',
    url: '/v1/camera-reads',
    action: 'camera_reads.store',
    summary: 'License plates that cameras have seen; each is matched with the baskets at its door',
    roles: producers,
    body: z.strictObject({
      reads: z
        .array(z.strictObject({ device: text(256), oblpn: text(256), at: z.iso.datetime({ offset: true }) }))
        .min(1)
        .max(1000),
    }),
    status: 202,
    response: z.object({ ids: z.array(id) }),
    handle: async ({ scope, body }) => ({
      ids: await storeCameraReads(
        scope,
        body.reads.map(({ device, oblpn, at }) => ({
          tenantId: scope.tenantId,
          deviceId: device.trim(),
          oblpn,
          eventTimestamp: at,
        })),
      ),
    }),
  }),
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
    summary: 'Movements as GS1 EPCIS 2.0 ObjectEvents (JSON-LD), in the order they were recorded',
    roles: readers,
    query: z.strictObject({
      from: z.iso.datetime({ offset: true }).optional(),
      to: z.iso.datetime({ offset: true }).optional(),
      limit: z.coerce.number().int().min(1).max(10_000).default(1000),
    }),
    response: z.looseObject({ type: z.literal('EPCISDocument') }),
    handle: async ({ scope, query: { from, to, limit } }) => {
      const range = { tenantId: scope.tenantId, ...given({ from, to }) };
      let text = '';
      for await (const piece of epcisDocument(first(readMovements(scope, range), limit))) text += piece;
      return JSON.parse(text);
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
];

async function* first<T>(items: AsyncIterable<T>, limit: number): AsyncGenerator<T> {
  let left = limit;
  for await (const item of items) {
    yield item;
    left -= 1;
    if (left === 0) return;
  }
}
