import type { Socket } from 'node:net';
import type { ConnectionOptions } from 'node:tls';
import { buildConnector } from 'undici';
import { fromDns, hasNoServer, type NameOptions, SystemNames } from './names.ts';

export interface Target {
  /** The IP address: no more lookup is needed. */
  readonly address: string;
  readonly port: number;
  /** Given for TLS: the name that the certificate must be for. Null where the URL has an address for a name. */
  readonly tls?: { readonly servername: string | null };
}

/** Makes the connections. Tests pass one that records the targets. */
export interface Network {
  /** `isPublic`: only public addresses are of use, so that names of this machine and its networks need not be known. */
  resolve(name: string, options?: { readonly isPublic?: boolean }): Promise<readonly string[]>;
  connect(target: Target): Promise<Socket>;
}

const connectTimeoutMs = 10_000;
/** One for the process, as its threads are. */
const system = new SystemNames();

/** `tls`: such as authorities to trust beside those that Node.js does. */
export function realNetwork(tls: Pick<ConnectionOptions, 'ca'> = {}, names: NameOptions = {}): Network {
  const connector = buildConnector({ ...tls, timeout: connectTimeoutMs, allowH2: false });
  return {
    resolve: async (name, { isPublic = false } = {}) => {
      if (!isPublic) return system.resolve(name, names);
      try {
        return await fromDns(name, names);
      } catch (error) {
        if (hasNoServer(error)) return system.resolve(name, names);
        throw error;
      }
    },
    connect: ({ address, port, tls: secured }) =>
      new Promise((resolve, reject) => {
        const options = {
          hostname: address,
          host: address,
          port: String(port),
          protocol: secured ? 'https:' : 'http:',
          ...(secured?.servername && { servername: secured.servername }),
        };
        connector(options, (error, socket) => (error ? reject(error) : resolve(socket as Socket)));
      }),
  };
}
