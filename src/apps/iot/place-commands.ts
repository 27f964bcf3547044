/** `tallyman iot …`: places, readers and cameras. */
import { type Command, Option } from 'commander';
import { formatInstant, parseInstant } from '../../engine/instant.ts';
import { given } from '../../given.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  type PageOptions,
  withJson,
  withPage,
} from '../../host/cli/options.ts';
import { show } from '../../host/cli/output/print.ts';
import { relativeTime } from '../../host/cli/output/time.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import { storeCameraReads } from './camera-reads.ts';
import { listDeviceEvents } from './device-events.ts';
import { knownDevices, requireDevice, requireHeardOf, unregisteredDevices } from './device-states.ts';
import { deviceEventJson, deviceJson, locationJson } from './json.ts';
import { deviceFacts, deviceTable, eventTable, locationFacts, locationTable } from './place-output.ts';
import {
  changeDevice,
  changeLocation,
  type DeviceRole,
  deviceRoles,
  listLocations,
  putDevice,
  putLocation,
  requireLocation,
} from './places.ts';

interface TenantOption extends JsonOption {
  readonly tenant: string;
}

const withTenant = (command: Command): Command =>
  withJson(command).option('-t, --tenant <id>', 'of this tenant', 'default');

export function addPlaces(program: Command, frame: CommandFrame): void {
  const iot = group(program, 'iot', 'places, readers and cameras');
  addLocations(iot, frame);
  addDevices(iot, frame);
  addCameras(iot, frame);
}

interface LocationOptions extends TenantOption {
  readonly name?: string;
  readonly sgln?: string;
}

const noneOr = (value: string | undefined): string | null | undefined => (value === 'none' ? null : value);

function addLocations(iot: Command, { withTallyman }: CommandFrame): void {
  const locations = group(iot, 'locations', 'places where devices stand');

  withTenant(locations.command('list'))
    .description('all places, by name')
    .addHelpText('after', examples(['iot locations list', 'iot locations list --json']))
    .action(({ tenant, json }: TenantOption) =>
      withTallyman(async ({ tallyman: { database } }) => {
        const found = await listLocations(database, tenant);
        show(json, { items: found.map(locationJson) }, () => locationTable(found));
      }),
    );

  withTenant(locations.command('show'))
    .description('one place, and the devices there')
    .argument('<location>', 'its id or its name')
    .addHelpText('after', examples(['iot locations show "dock 1"']))
    .action((idOrName: string, { tenant, json }: TenantOption) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const location = await requireLocation(database, tenant, idOrName);
        const devices = (await knownDevices(database, tenant)).filter(
          ({ locationId }) => locationId === location.id,
        );
        show(json, { ...locationJson(location), devices: devices.map(deviceJson) }, () =>
          [locationFacts(location), '', deviceTable(devices, [location], now)].join('\n'),
        );
      }),
    );

  withTenant(locations.command('add'))
    .description('make a place; one of that name that exists is shown')
    .argument('<name>', 'such as "dock 1"')
    .option('--sgln <uri>', 'how partners know it, such as urn:epc:id:sgln:0614141.00777.0')
    .addHelpText('after', examples(['iot locations add "dock 1"']))
    .action((name: string, { tenant, json, sgln }: LocationOptions) =>
      withTallyman(async ({ tallyman: { database } }) => {
        const location = await putLocation(database, tenant, name, sgln);
        show(json, locationJson(location), () => locationFacts(location));
      }),
    );

  withTenant(locations.command('set'))
    .description('change what is given, and leave the rest')
    .argument('<location>', 'its id or its name')
    .option('--name <name>', 'another name')
    .option('--sgln <uri>', 'how partners know it; "none" takes it away')
    .addHelpText('after', examples(['iot locations set "dock 1" --sgln urn:epc:id:sgln:0614141.00777.0']))
    .action((idOrName: string, { tenant, json, name, sgln }: LocationOptions) =>
      withTallyman(async ({ tallyman: { database } }) => {
        const { id } = await requireLocation(database, tenant, idOrName);
        const changes = given({ name, sgln: noneOr(sgln) });
        const location = await changeLocation(database, tenant, id, changes);
        show(json, locationJson(location), () => locationFacts(location));
      }),
    );
}

interface DeviceOptions extends TenantOption {
  readonly name?: string;
  readonly location?: string;
  readonly role?: DeviceRole;
}

const withDeviceSettings = (command: Command): Command =>
  command
    .option('--location <place>', 'where it stands: id or name; "none": nowhere')
    .option('--name <name>', 'a name for people');

const roleOption = () => new Option('--role <role>', 'what it is there for').choices(deviceRoles);

function addDevices(iot: Command, frame: CommandFrame): void {
  const devices = group(iot, 'devices', 'readers and cameras, as their topics name them');
  addDeviceList(devices, frame, 'devices');
  addDeviceShow(devices, frame, 'devices');

  withTenant(withDeviceSettings(devices.command('add')).addOption(roleOption()))
    .description('make a device, or replace the one with that serial')
    .argument('<serial>', 'as in its topic: dock-7 of zebra/fx/dock-7/reads')
    .addHelpText('after', examples(['iot devices add dock-7 --location "dock 1" --role dock-door']))
    .action((serial: string, options: DeviceOptions) => put(frame, serial, options));

  withTenant(withDeviceSettings(devices.command('set')).addOption(roleOption()))
    .description('change what is given, and leave the rest')
    .argument('<serial>', 'the device')
    .addHelpText('after', examples(['iot devices set dock-7 --role return-door']))
    .action((serial: string, options: DeviceOptions) => change(frame, serial, options));

  withPage(devices.command('events'))
    .description('what a device reported besides reads and heartbeats, newest first')
    .argument('<serial>', 'the device')
    .option('-t, --tenant <id>', 'of this tenant', 'default')
    .addHelpText('after', examples(['iot devices events dock-7']))
    .action((serial: string, options: PageOptions & TenantOption) =>
      frame.withTallyman(async ({ tallyman: { database }, now }) => {
        await requireHeardOf(database, options.tenant, serial);
        const found = await collect(options, (at) => listDeviceEvents(database, options.tenant, serial, at));
        const { items, nextCursor } = found;
        show(options.json, { items: items.map(deviceEventJson), next_cursor: nextCursor }, () =>
          items.length === 0 ? 'It has reported nothing.' : eventTable(items, now) + more(nextCursor),
        );
      }),
    );
}

function addCameras(iot: Command, frame: CommandFrame): void {
  const cameras = group(iot, 'cameras', 'devices that see license plates at a door');
  addDeviceList(cameras, frame, 'cameras', ['camera']);
  addDeviceShow(cameras, frame, 'cameras');

  withTenant(withDeviceSettings(cameras.command('add')))
    .description('make a camera; it belongs to the readers at its location')
    .argument('<serial>', 'as it names itself in its reads')
    .addHelpText('after', examples(['iot cameras add cam-1 --location "dock 1"']))
    .action((serial: string, options: DeviceOptions) => put(frame, serial, { ...options, role: 'camera' }));

  withTenant(withDeviceSettings(cameras.command('set')))
    .description('change what is given, and leave the rest')
    .argument('<serial>', 'the camera')
    .addHelpText('after', examples(['iot cameras set cam-1 --location "dock 2"']))
    .action((serial: string, options: DeviceOptions) => change(frame, serial, options));

  withTenant(cameras.command('read'))
    .description('store that a camera saw a license plate; it is matched with the baskets at its door')
    .argument('<serial>', 'the camera')
    .argument('<oblpn>', 'the plate')
    .option('--at <time>', 'when, such as 2026-03-01T09:30:00Z (default: now)')
    .addHelpText('after', examples(['iot cameras read cam-1 OB-1']))
    .action((serial: string, oblpn: string, { tenant, json, at }: TenantOption & { at?: string }) =>
      frame.withTallyman(async ({ tallyman: { database }, now }) => {
        const device = await requireDevice(database, tenant, serial);
        const eventTimestamp = formatInstant(at === undefined ? now.getTime() * 1000 : parseInstant(at));
        const read = { tenantId: tenant, deviceId: device.serial, oblpn, eventTimestamp };
        const [id] = await storeCameraReads(database, [read]);
        show(json, { id }, () => `Camera read ${id}: ${oblpn} at ${device.name}.`);
      }),
    );
}

function addDeviceList(
  parent: Command,
  { withTallyman }: CommandFrame,
  noun: string,
  only?: readonly string[],
): void {
  withTenant(parent.command('list'))
    .description('where each stands, when it was last heard of, and whether its clock is right')
    .addHelpText('after', examples([`iot ${noun} list`, `iot ${noun} list --json`]))
    .action(({ tenant, json }: TenantOption) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const found = await knownDevices(database, tenant, only);
        const unknown = only ? [] : await unregisteredDevices(database, tenant);
        const unregistered = unknown.map(({ serial, lastSeenAt }) => ({ serial, last_seen_at: lastSeenAt }));
        const locations = await listLocations(database, tenant);
        const hint = unknown.map(
          ({ serial, lastSeenAt }) =>
            `${serial} was heard of ${relativeTime(lastSeenAt, now)}, but is not registered: tallyman iot devices add ${serial} --location …`,
        );
        show(json, { items: found.map(deviceJson), ...(only ? {} : { unregistered }) }, () =>
          [deviceTable(found, locations, now), ...hint].join('\n'),
        );
      }),
    );
}

function addDeviceShow(parent: Command, { withTallyman }: CommandFrame, noun: string): void {
  withTenant(parent.command('show'))
    .description('one of them, with its state')
    .argument('<serial>', 'as in its topic')
    .addHelpText('after', examples([`iot ${noun} show dock-7`]))
    .action((serial: string, { tenant, json }: TenantOption) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const device = await requireDevice(database, tenant, serial);
        const locations = await listLocations(database, tenant);
        show(json, deviceJson(device), () => deviceFacts(device, locations, now));
      }),
    );
}

const put = (frame: CommandFrame, serial: string, options: DeviceOptions): Promise<void> =>
  write(frame, serial, options, putDevice);
const change = (frame: CommandFrame, serial: string, options: DeviceOptions): Promise<void> =>
  write(frame, serial, options, changeDevice);

function write(
  { withTallyman }: CommandFrame,
  serial: string,
  { tenant, json, name, location, role }: DeviceOptions,
  save: typeof putDevice,
): Promise<void> {
  return withTallyman(async ({ tallyman: { database }, now }) => {
    const place = noneOr(location);
    const locationId = place ? (await requireLocation(database, tenant, place)).id : place;
    await save(database, { tenantId: tenant, serial, ...given({ name, locationId, role }) });
    const device = await requireDevice(database, tenant, serial);
    const locations = await listLocations(database, tenant);
    show(json, deviceJson(device), () => deviceFacts(device, locations, now));
  });
}
