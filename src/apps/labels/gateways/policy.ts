import { homeTenant } from '../../../host/roles.ts';
import { AddressPolicy, type PolicyNames } from '../../../network/addresses.ts';
import type { LabelsConfig } from '../config.ts';

export const policyNames: PolicyNames = {
  address: 'the address of the gateway',
  allowPrivate: 'labels.allowPrivateAddresses',
  requireHttps: 'https',
};

export type GatewayPolicies = (tenantId: string) => AddressPolicy;

/**
 * Where gateways may be. Those of the home tenant are the operator's own, and stand in private networks. A store of another
 * tenant could have the server connect to anything that it reaches, so private addresses are for the configuration to allow.
 */
export function gatewayPolicies(config: Pick<LabelsConfig, 'labels.allowPrivateAddresses'>): GatewayPolicies {
  const allowed = config['labels.allowPrivateAddresses'];
  const shared = { requireHttps: false, names: policyNames };
  const home = new AddressPolicy({ ...shared, allowPrivate: true });
  const others = new AddressPolicy({
    ...shared,
    allowPrivate: typeof allowed === 'string' ? allowed.split(',') : allowed,
  });
  return (tenantId) => (tenantId === homeTenant ? home : others);
}
