import { isIP, type Socket } from 'node:net';
import { Agent } from 'undici';
import { TallymanError } from '../../../engine/errors.ts';
import type { AddressPolicy } from './addresses.ts';
import type { Network } from './network.ts';

/**
 * Connections that lead only where the policy allows. The name is resolved once, every address it has is checked, and
 * the connection goes to a checked address itself: there is no second resolution that could answer otherwise.
 * No proxy, no redirect, HTTP/1.1.
 */
export function guardedAgent(policy: AddressPolicy, network: Network): Agent {
  return new Agent({
    // The exchange has one time limit of its own for everything.
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
    throw new TallymanError('HTTPS_REQUIRED', `http to ${host} is refused: webhooks.requireHttps is on`);
  const isName = isIP(host) === 0;
  const addresses = isName ? await network.resolve(host) : [host];
  if (addresses.length === 0) throw new TallymanError('NO_ADDRESS', `${host} has no address`);
  // One bad address among good ones is refused, too: which one is taken must not be a matter of luck.
  for (const address of addresses) {
    const why = policy.refusal(address);
    if (why !== undefined)
      throw new TallymanError(
        'ADDRESS_REFUSED',
        isName ? `${host} leads to ${address}, which is ${why}` : `${address} is ${why}`,
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
