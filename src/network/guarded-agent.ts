import { isIP, type Socket } from 'node:net';
import { Agent } from 'undici';
import { TallymanError } from '../engine/errors.ts';
import type { AddressPolicy } from './addresses.ts';
import type { Network } from './network.ts';

/**
 * Connects only where the policy allows. It resolves the name once, checks every address, and connects to a checked
 * address: there is no second lookup that could give another answer.
 * No proxy, no redirect, HTTP/1.1.
 */
export function guardedAgent(
  policy: AddressPolicy,
  network: Network,
  options: { readonly connections?: number } = {},
): Agent {
  return new Agent({
    ...options,
    // The exchange has its own time limit for everything.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: ({ hostname, port, protocol }, callback) => {
      const isTls = protocol === 'https:';
      openChecked(policy, network, hostname.replace(/^\[(.*)\]$/, '$1'), {
        port: Number(port) || (isTls ? 443 : 80),
        isTls,
      }).then(
        (socket) => callback(null, socket),
        (error: Error) => callback(error, null),
      );
    },
  });
}

async function openChecked(
  policy: AddressPolicy,
  network: Network,
  host: string,
  { port, isTls }: { readonly port: number; readonly isTls: boolean },
): Promise<Socket> {
  if (!isTls && policy.requireHttps)
    throw new TallymanError(
      'HTTPS_REQUIRED',
      `http to ${host} is refused: ${policy.names.requireHttps} is on`,
    );
  const isName = isIP(host) === 0;
  const addresses = isName ? await network.resolve(host, { isPublic: !policy.allowsPrivate }) : [host];
  if (addresses.length === 0) throw new TallymanError('NO_ADDRESS', `${host} has no address`);
  // One bad address among good ones is refused, too: the result must not depend on which one is chosen.
  for (const address of addresses) {
    const why = policy.refusal(address);
    if (why !== undefined)
      throw new TallymanError(
        'ADDRESS_REFUSED',
        // Not where a name leads: that would tell a tenant how the operator's network is numbered.
        isName ? `${host} leads to an address that is ${why}` : `${address} is ${why}`,
      );
  }
  let problem: unknown;
  for (const address of addresses) {
    try {
      return await network.connect({
        address,
        port,
        ...(isTls && { tls: { servername: isName ? host : null } }),
      });
    } catch (error) {
      problem = error;
    }
  }
  throw problem;
}
