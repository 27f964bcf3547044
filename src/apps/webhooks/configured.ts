import type { AddressPolicyOptions } from '../../network/addresses.ts';
import type { WebhooksConfig } from './config.ts';

/** The configured network policy of webhooks. */
export function addressPolicy(config: WebhooksConfig): AddressPolicyOptions {
  const allowed = config['webhooks.allowPrivateAddresses'];
  return {
    allowPrivate: typeof allowed === 'string' ? allowed.split(',') : allowed,
    requireHttps: config['webhooks.requireHttps'],
  };
}

/** One receiver may use a tenth of a process's slots. */
export const deliveriesPerEndpoint = (config: WebhooksConfig): number =>
  Math.max(1, Math.floor(config['webhooks.concurrency'] / 10));
