import type { Config } from '../config/keys.ts';
import type { AddressPolicyOptions } from './network/addresses.ts';

/** What the configuration says about where webhooks may go. */
export function addressPolicy(config: Config): AddressPolicyOptions {
  const allowed = config['webhooks.allowPrivateAddresses'];
  return {
    allowPrivate: typeof allowed === 'string' ? allowed.split(',') : allowed,
    requireHttps: config['webhooks.requireHttps'],
  };
}
