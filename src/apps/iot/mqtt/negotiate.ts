import { TallymanError } from '../../../engine/errors.ts';
import { within } from '../../../engine/resilience/deadline.ts';
import { Connection, type ConnectionOptions } from './connection.ts';
import type { MqttSettings } from './options.ts';
import type { ProtocolVersion } from './packets.ts';
import { unsupportedVersion } from './reasons.ts';

/**
 * MQTT 5, or 3.1.1 if the broker says that it does not support 5. A broker that merely closes the connection does not count:
 * subscriptions made in 3.1.1 without their group would stay in the session.
 */
export async function negotiate(
  settings: MqttSettings,
  options: Omit<ConnectionOptions, 'version'>,
  first: ProtocolVersion = settings.protocol === '3.1.1' ? 4 : 5,
): Promise<Connection> {
  try {
    return await Connection.open(settings, { ...options, version: first });
  } catch (error) {
    const reasonCode = error instanceof TallymanError ? error.details?.reasonCode : undefined;
    if (first === 4 || settings.protocol !== 'auto' || reasonCode !== unsupportedVersion) throw error;
    return Connection.open(settings, { ...options, version: 4 });
  }
}

/** For the doctor: one attempt with a time limit, which leaves no session behind. */
export async function openWithin(
  waitMs: number,
  settings: MqttSettings,
  onDelivery: ConnectionOptions['onDelivery'] = () => {},
  version?: ProtocolVersion,
): Promise<Connection> {
  const cut = new AbortController();
  try {
    return await within(negotiate(settings, { onDelivery, signal: cut.signal }, version), waitMs);
  } catch (error) {
    cut.abort();
    throw error;
  }
}
