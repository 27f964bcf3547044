import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import { type IdentityRules, identityOf } from '../domain/identity.ts';
import { BoundaryService } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import type { TlsMaterial } from '../rpc/server.ts';
import type { PeerSettings } from '../settings.ts';
import { repeatCutOff } from '../transport/cut-off.ts';
import type { Peer } from './push.ts';

export interface ConnectionsOptions {
  readonly peers: readonly PeerSettings[];
  readonly identities: IdentityRules;
  readonly certificates: TlsMaterial;
}

/** A line that is cut without a word is noticed after about this long. */
const pingMs = 10_000;
/** A connection with certificates from before a change ends when it has had no call for this long. */
const idleMs = 60_000;
/** As the server's, for one message. */
const maxMessageBytes = 4 * 1024 * 1024;

interface Connection {
  readonly client: Peer;
  readonly session: Http2SessionManager;
}

/** Connections from this node to peers, made when they are needed. */
export class PeerConnections {
  readonly #options: ConnectionsOptions;
  #connections: ReadonlyMap<string, Connection>;
  /** With certificates from before a change: what is under way on them goes on. */
  #former: Http2SessionManager[] = [];

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#connections = this.#open(options.certificates);
  }

  /** Ask with every call: it changes with the certificates. */
  client(zone: string): Peer {
    const found = this.#connections.get(zone);
    if (!found) throw new TallymanError('BAD_OPTION', `there is no address of zone "${zone}"`);
    return found.client;
  }

  /** From here on calls go over connections with these certificates. */
  reload(certificates: TlsMaterial): void {
    this.#former = this.#former.filter((session) => session.state() !== 'closed');
    for (const { session } of this.#connections.values()) this.#former.push(session);
    this.#connections = this.#open(certificates);
  }

  close(): void {
    for (const { session } of this.#connections.values()) session.abort();
    for (const session of this.#former) session.abort();
  }

  #open(certificates: TlsMaterial): ReadonlyMap<string, Connection> {
    const { peers, identities } = this.#options;
    return new Map(
      peers.flatMap(({ zone, url }) =>
        url === undefined ? [] : [[zone as string, connect(url, zone, certificates, identities)] as const],
      ),
    );
  }
}

function connect(
  url: string,
  zone: string,
  { key, cert, ca }: TlsMaterial,
  identities: IdentityRules,
): Connection {
  const session = new Http2SessionManager(
    url,
    { pingIntervalMs: pingMs, pingTimeoutMs: pingMs, idleConnectionTimeoutMs: idleMs },
    {
      key,
      cert,
      ca,
      minVersion: 'TLSv1.2',
      checkServerIdentity: (host, certificate) =>
        checkServerIdentity(host, certificate) ?? wrongZone(certificate, zone, identities),
    },
  );
  const transport = createGrpcTransport({
    baseUrl: url,
    sessionManager: session,
    readMaxBytes: maxMessageBytes,
    writeMaxBytes: maxMessageBytes,
    interceptors: [repeatCutOff],
  });
  return { client: createClient(BoundaryService, transport), session };
}

/** The host name alone is not enough: every zone's authority may be the same, and a name can be pointed elsewhere. */
function wrongZone(certificate: PeerCertificate, zone: string, identities: IdentityRules): Error | undefined {
  try {
    const { CN } = certificate.subject;
    const who = identityOf(
      {
        subjectAltName: certificate.subjectaltname,
        commonName: typeof CN === 'string' ? CN : undefined,
      },
      identities,
    );
    return who.zone === zone && who.role === 'peer'
      ? undefined
      : new Error(`the node that answers is ${who.name}, not a peer of zone "${zone}"`);
  } catch (error) {
    return new Error(`the node that answers is not known: ${messageOf(error)}`);
  }
}
