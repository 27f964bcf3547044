/** Devices and places as the API and `--json` show them. */
import type { StoredDeviceEvent } from './device-events.ts';
import type { KnownDevice } from './device-states.ts';
import type { Location } from './places.ts';

export const locationJson = ({ id, name, sgln }: Location) => ({ id, name, sgln });

export const deviceJson = (device: KnownDevice) => ({
  id: device.id,
  serial: device.serial,
  name: device.name,
  location_id: device.locationId,
  role: device.role,
  last_seen_at: device.lastSeenAt,
  last_read_at: device.lastReadAt,
  last_heartbeat_at: device.lastHeartbeatAt,
  clock_skew_ms: device.clockSkewMs,
  errors: device.errors,
  warnings: device.warnings,
  last_error: device.lastError,
  last_error_at: device.lastErrorAt,
  ignored_reads: device.ignoredReads,
  state: device.state,
});

export const deviceEventJson = ({ id, type, level, summary, occurredAt, receivedAt }: StoredDeviceEvent) => ({
  id,
  type,
  level,
  summary,
  occurred_at: occurredAt,
  received_at: receivedAt,
});
