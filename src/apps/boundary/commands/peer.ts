/** The node of the other zone, as the commands of this node ask it. */
import { usage } from '../../../host/cli/exit.ts';
import type { Peer } from '../handoff/push.ts';
import type { NodeParts } from '../node.ts';

/** Whether this node can connect to the other zone at all. */
export const hasAddress = ({ settings: { tls, peers } }: NodeParts, zone: string): boolean =>
  tls !== undefined && peers.some((peer) => peer.zone === zone && peer.url !== undefined);

export async function withPeer<T>(
  { settings }: NodeParts,
  zone: string,
  work: (peer: Peer) => Promise<T>,
): Promise<T> {
  const { tls, peers } = settings;
  if (!tls)
    throw usage('zones talk over the line: set boundary.tls.certFile and the other keys of boundary.tls');
  const [{ PeerConnections }, { loadCertificates }] = await Promise.all([
    import('../handoff/connections.ts'),
    import('../certificates.ts'),
  ]);
  const certificates = await loadCertificates({ ...tls, zone: settings.zone });
  const connections = new PeerConnections({ peers, identities: tls.identities, certificates });
  try {
    return await work(connections.client(zone));
  } finally {
    connections.close();
  }
}
