/** Places and devices as `tallyman iot …` prints them. */
import { facts, table } from '../../host/cli/output/table.ts';
import { terminalWidth } from '../../host/cli/output/terminal.ts';
import { duration, fullTime, relativeTime } from '../../host/cli/output/time.ts';
import type { StoredDeviceEvent } from './device-events.ts';
import type { KnownDevice } from './device-states.ts';
import type { Location } from './places.ts';

const nameOf = (locations: readonly Location[], id: string | null): string =>
  id === null ? '' : (locations.find((location) => location.id === id)?.name ?? `location ${id}`);

export const locationTable = (locations: readonly Location[]): string =>
  table<Location>(
    [
      { title: 'ID', value: ({ id }) => id, right: true },
      { title: 'NAME', value: ({ name }) => name, shrinkTo: 12 },
      { title: 'SGLN', value: ({ sgln }) => sgln, leaveOut: 1 },
    ],
    locations,
    terminalWidth(),
  );

export const locationFacts = ({ id, name, sgln }: Location): string =>
  facts([
    ['location', name],
    ['id', id],
    ['SGLN', sgln],
  ]);

export const deviceTable = (
  devices: readonly KnownDevice[],
  locations: readonly Location[],
  now: Date,
): string =>
  table<KnownDevice>(
    [
      { title: 'SERIAL', value: ({ serial }) => serial, shrinkTo: 10 },
      { title: 'ROLE', value: ({ role }) => role },
      { title: 'LOCATION', value: ({ locationId }) => nameOf(locations, locationId), shrinkTo: 10 },
      {
        title: 'LAST SEEN',
        value: ({ lastSeenAt }) => (lastSeenAt ? relativeTime(lastSeenAt, now) : 'never'),
      },
      { title: 'CLOCK', value: ({ clockSkewMs }) => clock(clockSkewMs), leaveOut: 2 },
      { title: 'ERRORS', value: ({ errors }) => errors || null, right: true, leaveOut: 1 },
      { title: 'IGNORED', value: ({ ignoredReads }) => ignoredReads || null, right: true, leaveOut: 3 },
    ],
    devices,
    terminalWidth(),
  );

/** Below a second it is the way of the message, not the clock. */
function clock(skewMs: number | null): string | null {
  if (skewMs === null) return null;
  if (Math.abs(skewMs) < 1000) return 'right';
  return skewMs > 0 ? `${duration(skewMs)} ahead` : `${duration(-skewMs)} behind, or late`;
}

export function deviceFacts(device: KnownDevice, locations: readonly Location[], now: Date): string {
  const time = (at: Date | null): string | null => at && fullTime(at, now);
  return facts([
    ['device', device.serial],
    ['name', device.name === device.serial ? null : device.name],
    ['role', device.role],
    ['location', nameOf(locations, device.locationId) || 'none: its reads wait until it has one'],
    ['last seen', time(device.lastSeenAt) ?? 'never'],
    ['last read', time(device.lastReadAt)],
    ['last heartbeat', time(device.lastHeartbeatAt)],
    ['clock', clock(device.clockSkewMs)],
    ['errors', device.errors || null],
    ['warnings', device.warnings || null],
    [
      'last error',
      device.lastError && device.lastErrorAt
        ? `${device.lastError} (${fullTime(device.lastErrorAt, now)})`
        : null,
    ],
    ['ignored reads', device.ignoredReads || null],
    ...Object.entries(device.state).map(([name, value]) => [name, value] as const),
  ]);
}

export const eventTable = (events: readonly StoredDeviceEvent[], now: Date): string =>
  table<StoredDeviceEvent>(
    [
      { title: 'WHEN', value: ({ occurredAt }) => relativeTime(occurredAt, now) },
      { title: 'LEVEL', value: ({ level }) => level },
      { title: 'TYPE', value: ({ type }) => type },
      { title: 'WHAT', value: ({ summary }) => summary, shrinkTo: 20 },
    ],
    events,
    terminalWidth(),
  );
