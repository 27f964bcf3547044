import { TallymanError } from '../../../engine/errors.ts';
import { within } from '../../../engine/resilience/deadline.ts';
import { Connection, type ConnectionOptions } from './connection.ts';
import type { MqttSettings } from './options.ts';
import type { ProtocolVersion } from './packets.ts';
import { unsupportedVersion } from './reasons.ts';

/**
 * MQTT 5, and 3.1.1 where the broker says that it has no 5. A broker that merely hangs up is not taken to mean that:
 * a session whose subscriptions were once made without their group keeps them.
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

/** For the doctor: an attempt that may take so long, and then leaves nothing behind. */
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
