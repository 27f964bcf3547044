/**
 * Management events of Zebra FX readers, usually on `zebra/fx/{device}/events`: heartbeats, inputs (GPI), antennas, errors and
 * warnings, one in a message or an array of them:
 *
 *     {"type": "heartbeat", "timestamp": "…", "data": {"radio_control": {"antennas": {"1": "connected"}, …}, "system": {…}}}
 *     {"type": "gpi", "timestamp": "…", "data": {"pin": 1, "state": "HIGH"}}
 *     {"type": "error", "timestamp": "…", "component": "RC", "data": {"code": 5, "message": "antenna 2 disconnected"}}
 *
 * Which fields there are depends on the firmware and on what was switched on. What is not known is kept as it came.
 */
import { messageOf } from '../../engine/errors.ts';
import { formatInstant, parseInstant } from '../../engine/instant.ts';
import type { DeviceEvent, EventLevel } from './device-events.ts';
import { isRecord, kindOf, parseJson, type RejectedItem } from './zebra.ts';

export interface ZebraEvents {
  readonly events: readonly DeviceEvent[];
  readonly rejected: readonly RejectedItem[];
}

export interface ZebraEventOptions {
  readonly tenantId: string;
  readonly deviceId: string;
  readonly receivedAt: Date;
  readonly maxBytes?: number;
}

const longestText = 500;

export function parseZebraEvents(payload: Buffer, options: ZebraEventOptions): ZebraEvents {
  const parsed = parseJson(payload, options.maxBytes);
  if ('flaw' in parsed) return { events: [], rejected: [{ index: null, reason: parsed.flaw }] };
  const events: DeviceEvent[] = [];
  const rejected: RejectedItem[] = [];
  for (const [index, item] of (Array.isArray(parsed.message) ? parsed.message : [parsed.message]).entries()) {
    const event = eventOf(item, options);
    if (typeof event === 'string') rejected.push({ index, reason: event });
    else events.push(event);
  }
  return { events, rejected };
}

function eventOf(item: unknown, { tenantId, deviceId, receivedAt }: ZebraEventOptions): string | DeviceEvent {
  if (!isRecord(item)) return `an event must be an object, got ${kindOf(item)}`;
  const { type: given, eventType, timestamp, data } = item;
  const named = given ?? eventType;
  if (typeof named !== 'string' || named.trim() === '') return `type must be a text, got ${kindOf(named)}`;
  const type = clean(named.trim().toLowerCase()).slice(0, 64);
  let occurredAt = formatInstant(receivedAt.getTime() * 1000);
  let ownClock = false;
  if (typeof timestamp === 'string') {
    try {
      occurredAt = formatInstant(parseInstant(timestamp));
      ownClock = true;
    } catch (error) {
      return messageOf(error);
    }
  } else if (timestamp !== undefined && timestamp !== null)
    return `timestamp must be a text, got ${kindOf(timestamp)}`;
  const details = isRecord(data) ? data : {};
  const level = levelOf(type);
  return {
    tenantId,
    deviceId,
    type,
    level,
    occurredAt,
    ownClock,
    receivedAt,
    isHeartbeat: type === 'heartbeat',
    state: stateOf(type, details),
    summary: summaryOf(type, item, details),
    data: item,
  };
}

function levelOf(type: string): EventLevel {
  if (/error|exception|alert|fault/.test(type)) return 'error';
  return /warn/.test(type) ? 'warning' : 'info';
}

/** What the event says about how things are now. */
function stateOf(type: string, data: Readonly<Record<string, unknown>>): Record<string, string | number> {
  const state: Record<string, string | number> = {};
  const put = (name: string, value: unknown): void => {
    if (typeof value === 'number' && Number.isFinite(value)) state[name] = value;
    else if (typeof value === 'string' && value !== '') state[name] = clean(value);
    else if (typeof value === 'boolean') state[name] = String(value);
  };
  const putEach = (name: string, values: unknown): void => {
    if (isRecord(values))
      for (const [place, value] of Object.entries(values).slice(0, 64)) put(`${name} ${clean(place)}`, value);
  };
  const part = (name: string): Readonly<Record<string, unknown>> => {
    const found = data[name];
    return isRecord(found) ? found : {};
  };
  if (type === 'heartbeat') {
    const radio = part('radio_control');
    const system = part('system');
    putEach('antenna', radio.antennas);
    put('radio', radio.radioConnection);
    put('radio activity', radio.radioActivity ?? radio.radioActivitity);
    put('radio control', radio.status);
    put('errors', radio.numErrors);
    put('warnings', radio.numWarnings);
    putEach('gpi', system.GPI ?? system.gpi);
    putEach('gpo', system.GPO ?? system.gpo);
    put('temperature', system.temperature);
    put('uptime', system.uptime);
    put('power', system.powerSource);
    if (isRecord(system.ntp)) put('ntp offset', system.ntp.offset);
  } else if (type === 'gpi') {
    const pin = data.pin ?? data.port ?? data.id;
    if (typeof pin === 'number' || typeof pin === 'string')
      put(`gpi ${clean(String(pin))}`, data.state ?? data.value);
  } else if (type.startsWith('antenna')) {
    const antenna = data.antenna ?? data.port ?? data.id;
    if (typeof antenna === 'number' || typeof antenna === 'string')
      put(`antenna ${clean(String(antenna))}`, data.state ?? data.status ?? data.connected);
  }
  return state;
}

function summaryOf(
  type: string,
  item: Readonly<Record<string, unknown>>,
  data: Readonly<Record<string, unknown>>,
): string {
  const words = [data.message, data.description, data.error, data.reason, data.text, item.message].find(
    (value) => typeof value === 'string' && value !== '',
  );
  if (typeof words === 'string') return clean(words).slice(0, longestText);
  const state = Object.entries(stateOf(type, data)).map(([name, value]) => `${name}: ${value}`);
  return (state.join(', ') || type).slice(0, longestText);
}

const clean = (text: string): string => text.replaceAll('\0', '\ufffd').toWellFormed().slice(0, longestText);
