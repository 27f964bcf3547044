import { describe } from '../../../engine/database/database.ts';
import { TallymanError } from '../../../engine/errors.ts';
import type { MqttOptions } from '../../iot/mqtt/index.ts';

/** How the consumer reaches the broker of an address. */
export function connectionOf(
  address: string,
): Pick<MqttOptions, 'brokerHost' | 'brokerPort' | 'tls' | 'username' | 'password'> {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url === undefined || !['mqtt:', 'mqtts:'].includes(url.protocol) || url.hostname === '')
    throw new TallymanError(
      'BAD_OPTION',
      `MQTT_URL is "${describe(address)}"; expected mqtt://host:1883 or mqtts://user:password@host:8883`,
    );
  const tls = url.protocol === 'mqtts:';
  return {
    brokerHost: url.hostname.replace(/^\[|\]$/g, ''),
    brokerPort: url.port === '' ? (tls ? 8883 : 1883) : Number(url.port),
    tls,
    ...(url.username !== '' && { username: decodeURIComponent(url.username) }),
    ...(url.password !== '' && { password: decodeURIComponent(url.password) }),
  };
}
