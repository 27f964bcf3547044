import { z } from 'zod';
import { pageByName } from '../../engine/paging.ts';
import { given } from '../../given.ts';
import { operators, producers, readers } from '../../host/roles.ts';
import { id, page, pageByNames, pageOf, route, text } from '../../host/route.ts';
import { storeCameraReads } from './camera-reads.ts';
import { listDeviceEvents } from './device-events.ts';
import { knownDevices, requireDevice, requireHeardOf, unregisteredDevices } from './device-states.ts';
import { deviceEventJson, deviceJson, locationJson } from './json.ts';
import {
  changeDevice,
  changeLocation,
  deviceRoles,
  listLocations,
  putDevice,
  putLocation,
  requireLocation,
} from './places.ts';

const locationShape = z.object({ id, name: z.string(), sgln: z.string().nullable() });
const sgln = text(256)
  .nullable()
  .optional()
  .describe('How partners know the place, such as urn:epc:id:sgln:0614141.00777.0');

const deviceShape = z.object({
  id,
  serial: z.string(),
  name: z.string(),
  location_id: id.nullable(),
  role: z.string(),
  last_seen_at: z.string().nullable(),
  last_read_at: z.string().nullable(),
  last_heartbeat_at: z.string().nullable(),
  clock_skew_ms: z.number().nullable().describe('Its clock minus ours; positive: it is ahead'),
  errors: z.number(),
  warnings: z.number(),
  last_error: z.string().nullable(),
  last_error_at: z.string().nullable(),
  ignored_reads: z.number().describe('Reads of tags that the configuration ignores'),
  state: z.record(z.string(), z.union([z.string(), z.number()])),
});

const bySerial = z.strictObject({ serial: text(256) });
const deviceSettings = z.strictObject({
  name: text(256).optional(),
  location_id: id.nullable().optional(),
  role: z.enum(deviceRoles).optional(),
});
const settingsOf = ({ name, location_id, role }: z.output<typeof deviceSettings>) =>
  given({ name, locationId: location_id, role });

export const iotRoutes = [
  route({
    method: 'GET',
    url: '/v1/locations',
    action: 'locations.list',
    summary: 'Places where devices stand',
    roles: readers,
    query: z.strictObject(pageByNames),
    response: pageOf(locationShape),
    handle: async ({ scope, query }) => {
      const all = await listLocations(scope, scope.tenantId);
      const found = pageByName(all, ({ name }) => name, given(query));
      return { items: found.items.map(locationJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/locations/:id',
    action: 'locations.show',
    summary: 'One place, by its id or its name',
    roles: readers,
    params: z.strictObject({ id: text(256) }),
    response: locationShape,
    handle: async ({ scope, params }) =>
      locationJson(await requireLocation(scope, scope.tenantId, params.id)),
  }),
  route({
    method: 'POST',
    url: '/v1/locations',
    action: 'locations.put',
    summary: 'Make a place, or find the one of that name',
    roles: operators,
    body: z.strictObject({ name: text(256), sgln }),
    response: locationShape,
    handle: async ({ scope, body }) =>
      locationJson(await putLocation(scope, scope.tenantId, body.name, body.sgln)),
  }),
  route({
    method: 'PATCH',
    url: '/v1/locations/:id',
    action: 'locations.change',
    summary: 'Change what is given of a place',
    roles: operators,
    params: z.strictObject({ id }),
    body: z.strictObject({ name: text(256).optional(), sgln }),
    response: locationShape,
    handle: async ({ scope, params, body }) =>
      locationJson(await changeLocation(scope, scope.tenantId, params.id, given(body))),
  }),
  route({
    method: 'GET',
    url: '/v1/devices',
    action: 'devices.list',
    summary: 'Readers and cameras, by serial; and those that were heard of but are not registered',
    roles: readers,
    query: z.strictObject({ role: z.enum(deviceRoles).optional(), ...pageByNames }),
    response: pageOf(deviceShape).extend({
      unregistered: z.array(z.object({ serial: z.string(), last_seen_at: z.string() })),
    }),
    handle: async ({ scope, query: { role, ...page } }) => {
      const devices = await knownDevices(scope, scope.tenantId, role && [role]);
      const found = pageByName(devices, ({ serial }) => serial, given(page));
      return {
        items: found.items.map(deviceJson),
        next_cursor: found.nextCursor,
        unregistered: (await unregisteredDevices(scope, scope.tenantId)).map(({ serial, lastSeenAt }) => ({
          serial,
          last_seen_at: lastSeenAt,
        })),
      };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/devices/:serial',
    action: 'devices.show',
    summary: 'One device, with its state',
    roles: readers,
    params: bySerial,
    response: deviceShape,
    handle: async ({ scope, params }) =>
      deviceJson(await requireDevice(scope, scope.tenantId, params.serial)),
  }),
  route({
    method: 'PUT',
    url: '/v1/devices/:serial',
    action: 'devices.put',
    summary: 'Make a device, or replace it: what is left out gets its default',
    roles: operators,
    params: bySerial,
    body: deviceSettings,
    response: deviceShape,
    handle: async ({ scope, params: { serial }, body }) => {
      await putDevice(scope, { tenantId: scope.tenantId, serial, ...settingsOf(body) });
      return deviceJson(await requireDevice(scope, scope.tenantId, serial));
    },
  }),
  route({
    method: 'PATCH',
    url: '/v1/devices/:serial',
    action: 'devices.change',
    summary: 'Change what is given of a device, and leave the rest',
    roles: operators,
    params: bySerial,
    body: deviceSettings,
    response: deviceShape,
    handle: async ({ scope, params: { serial }, body }) => {
      await changeDevice(scope, { tenantId: scope.tenantId, serial, ...settingsOf(body) });
      return deviceJson(await requireDevice(scope, scope.tenantId, serial));
    },
  }),
  route({
    method: 'GET',
    url: '/v1/devices/:serial/events',
    action: 'devices.events',
    summary: 'What a device reported besides reads and heartbeats, newest first',
    roles: readers,
    params: bySerial,
    query: z.strictObject(page),
    response: pageOf(
      z.object({
        id,
        type: z.string(),
        level: z.enum(['info', 'warning', 'error']),
        summary: z.string(),
        occurred_at: z.string(),
        received_at: z.string(),
      }),
    ),
    handle: async ({ scope, params, query }) => {
      await requireHeardOf(scope, scope.tenantId, params.serial);
      const found = await listDeviceEvents(scope, scope.tenantId, params.serial, given(query));
      return { items: found.items.map(deviceEventJson), next_cursor: found.nextCursor };
    },
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
];
