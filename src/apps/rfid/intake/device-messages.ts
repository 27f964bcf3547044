import type { Queryable } from '../../../engine/database/database.ts';
import { type DeviceEvent, parseZebraEvents, type RejectedItem, storeDeviceEvents } from '../../iot/index.ts';
import type { Received } from './unreadable.ts';

/** What readers say about themselves, message by message. */
export interface DeviceMessage {
  readonly message: Received;
  readonly events: readonly DeviceEvent[];
  readonly rejected: readonly RejectedItem[];
}

export function parseDeviceMessage(message: Received): DeviceMessage {
  const { flaw, tenantId, deviceId, receivedAt, payload } = message;
  if (flaw !== undefined || deviceId === undefined)
    return {
      message,
      events: [],
      rejected: [{ index: null, reason: flaw ?? `the topic "${message.topic}" names no device` }],
    };
  return { message, ...parseZebraEvents(payload, { tenantId, deviceId, receivedAt }) };
}

/** Resolves when all of them are durable. */
export async function storeDeviceMessages(on: Queryable, messages: readonly DeviceMessage[]): Promise<void> {
  await storeDeviceEvents(
    on,
    messages.flatMap(({ events }) => events),
  );
}
