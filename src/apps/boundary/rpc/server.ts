/**
 * The listener of a node: Connect, gRPC and gRPC-Web, and plain HTTP for objects, over HTTP/1.1 and HTTP/2 on one port.
 *
 * Certificates are judged here and not by the TLS handshake: a caller that is refused is told why, and it is noted. Nothing
 * of a request is read before its certificate was judged.
 */
import { constants } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import {
  createSecureServer,
  type Http2SecureServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { createContextValues } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { TallymanError } from '../../../engine/errors.ts';
import { isLoopbackHost } from '../../../network/loopback.ts';
import { BoundaryError } from '../domain/errors.ts';
import { type Identity, type IdentityRules, identityOf } from '../domain/identity.ts';
import { refuseHandshakes } from './handshakes.ts';
import { objectRequest } from './object-requests.ts';
import { answerError } from './plain-errors.ts';
import { type BoundaryNode, boundaryRoutes, callerKey } from './service.ts';

/** PEM texts. */
export interface TlsMaterial {
  readonly key: string;
  readonly cert: string;
  /** Who signs the certificates of callers. */
  readonly ca: string;
}

export interface ServerOptions {
  readonly node: BoundaryNode;
  readonly host: string;
  readonly port: number;
  /** Without it the node listens on loopback only, and everybody there is taken for one of its zone. */
  readonly tls?: { readonly load: () => Promise<TlsMaterial>; readonly identities: IdentityRules };
  /** A request over HTTP/1.1 whose headers take longer is cut off. Default 60,000. */
  readonly headersTimeoutMs?: number;
}

export interface BoundaryServer {
  readonly port: number;
  /** Takes over new certificates; connections that are open stay as they are. */
  reload(): Promise<void>;
  stop(): Promise<void>;
}

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

/** Of one message, on both ways. */
const maxMessageBytes = 4 * 1024 * 1024;
const maxCallsOfAConnection = 256;
/** Calls under way get this long to end when the server stops. */
const stopMs = 5_000;

export async function startBoundaryServer(options: ServerOptions): Promise<BoundaryServer> {
  const { node, host, port, tls } = options;
  if (!tls && !isLoopbackHost(host))
    throw new TallymanError(
      'BAD_OPTION',
      `a boundary node without TLS listens on loopback only, not on "${host}": configure certificates, or listen on 127.0.0.1`,
    );
  const stopping = new AbortController();
  const callers = new WeakMap<Request, Identity>();
  const rpc = connectNodeAdapter({
    routes: boundaryRoutes(node),
    readMaxBytes: maxMessageBytes,
    writeMaxBytes: maxMessageBytes,
    // A field that is misspelled must not be lost in silence. Names as in the proto file, as everywhere in our JSON.
    jsonOptions: { ignoreUnknownFields: false, useProtoFieldName: true, alwaysEmitImplicit: true },
    shutdownSignal: stopping.signal,
    contextValues: (request) => createContextValues().set(callerKey, callers.get(request)),
    fallback: (request, answer) => {
      const response = answer as ServerResponse;
      objectRequest(node, callers.get(request), request, response).catch((error: unknown) =>
        abandon(response, error, node),
      );
    },
  });
  const handle = (request: Request, response: Response): void => {
    try {
      callers.set(request, callerOf(request, options));
    } catch (error) {
      const { message: reason } = error as Error;
      const code = error instanceof BoundaryError ? error.reason : 'failed';
      const address = addressOf(request);
      node.onRefusal({ name: address, action: 'connect', code, reason, address });
      return answerError(response, error, node.logger);
    }
    const authority = authorityOf(request);
    if (!URL.canParse(`https://${authority}`)) return answerError(response, badHost(authority), node.logger);
    rpc(request as IncomingMessage, response as ServerResponse);
  };
  /** Whatever is wrong with a request must not end the process: nothing is thrown from here. */
  const onRequest = (request: Request, response: Response): void => {
    try {
      handle(request, response);
    } catch (error) {
      abandon(response, error, node);
    }
  };
  const { server, endSessions } = listener(node, tls && (await tls.load()), onRequest);
  limitHeaders(server, options.headersTimeoutMs ?? 60_000);
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  return {
    port: (server.address() as AddressInfo).port,
    reload: async () => {
      if (tls) (server as Http2SecureServer).setSecureContext(contextOf(await tls.load()));
    },
    stop: async () => {
      stopping.abort(new BoundaryError('ABORTED', 'stopping', 'the node stops; try again'));
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      await endSessions(closed);
    },
  };
}

function listener(
  node: BoundaryNode,
  material: TlsMaterial | undefined,
  onRequest: (request: Request, response: Response) => void,
): { server: Server | Http2SecureServer; endSessions: (closed: Promise<void>) => Promise<void> } {
  if (!material) {
    const server = createServer(onRequest);
    return {
      server,
      endSessions: (closed) =>
        endWithin(
          closed,
          () => server.closeIdleConnections(),
          () => server.closeAllConnections(),
        ),
    };
  }
  const server = createSecureServer(
    {
      ...contextOf(material),
      allowHTTP1: true,
      // A stream may hold a whole message: one connection must not hold any number of them.
      settings: { maxConcurrentStreams: maxCallsOfAConnection },
      requestCert: true,
      rejectUnauthorized: false,
    },
    onRequest,
  );
  refuseHandshakes(server, node);
  const sessions = new Set<ServerHttp2Session>();
  const sockets = new Set<TLSSocket>();
  server.on('session', (session) => {
    sessions.add(session);
    session.once('close', () => sessions.delete(session));
  });
  server.on('secureConnection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  return {
    server,
    endSessions: (closed) =>
      endWithin(
        closed,
        () => {
          for (const session of sessions) session.close();
        },
        () => {
          for (const socket of sockets) socket.destroy();
        },
      ),
  };
}

/**
 * An upload takes as long as it takes; the time for headers stays limited. Set as properties, before the server listens: as an option
 * `requestTimeout: 0` also removes the limit for headers, and a server with TLS does not take these options in every version of Node.
 */
function limitHeaders(server: Server | Http2SecureServer, headersTimeout: number): void {
  const connectionsCheckingInterval = Math.min(30_000, headersTimeout);
  Object.assign(server, { requestTimeout: 0, headersTimeout, connectionsCheckingInterval });
}

async function endWithin(closed: Promise<void>, gently: () => void, firmly: () => void): Promise<void> {
  gently();
  const timer = setTimeout(firmly, stopMs);
  await closed;
  clearTimeout(timer);
}

/**
 * Sessions cannot be resumed: a resumed one comes without a certificate, and the old one would count, whatever has happened to it
 * or to its authority since.
 */
const contextOf = ({ key, cert, ca }: TlsMaterial) => ({
  key,
  cert,
  ca,
  minVersion: 'TLSv1.2' as const,
  secureOptions: constants.SSL_OP_NO_TICKET,
});

function callerOf(request: Request, { node, tls }: ServerOptions): Identity {
  if (!tls) {
    // A web page in a browser on this machine can reach loopback under its own host name.
    const host = (request.headers.host ?? '').replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
    if (!isLoopbackHost(host) || request.headers.origin !== undefined)
      throw new BoundaryError(
        'PERMISSION_DENIED',
        'not_local',
        'without TLS only programs on this machine are served',
      );
    return { zone: node.zone, role: 'local', name: addressOf(request) };
  }
  const socket = tlsSocketOf(request);
  const certificate = socket.getPeerX509Certificate();
  if (!certificate)
    throw new BoundaryError('UNAUTHENTICATED', 'no_certificate', 'a client certificate is needed');
  if (!socket.authorized)
    throw new BoundaryError(
      'UNAUTHENTICATED',
      'certificate_refused',
      `the client certificate (${certificate.subjectAltName ?? certificate.subject}) is not accepted: ${socket.authorizationError}`,
    );
  const now = Date.now();
  if (now > certificate.validToDate.getTime())
    throw new BoundaryError('UNAUTHENTICATED', 'certificate_refused', 'the client certificate has expired');
  return identityOf(
    {
      subjectAltName: certificate.subjectAltName,
      commonName: /^CN=(.*)$/m.exec(certificate.subject)?.[1],
    },
    tls.identities,
  );
}

/** HTTP/2 hides the socket behind its session. */
const tlsSocketOf = (request: Request): TLSSocket =>
  ('stream' in request ? request.stream.session?.socket : request.socket) as TLSSocket;

const addressOf = (request: Request): string => request.socket.remoteAddress ?? 'unknown address';

/** Connect makes a URL of it, and throws where that cannot be done. */
const authorityOf = (request: Request): string =>
  ('authority' in request ? request.authority : request.headers.host) ?? '';

const badHost = (authority: string): BoundaryError =>
  new BoundaryError(
    'INVALID_ARGUMENT',
    'invalid_host',
    authority === ''
      ? 'the request names no host'
      : `the request names the host "${authority}", which is none`,
  );

/** Ends a request that failed in a way that nothing else has caught. */
function abandon(response: Response, error: unknown, { logger }: BoundaryNode): void {
  logger.error(
    { error: error instanceof Error ? (error.stack ?? error.message) : String(error) },
    'a request failed',
  );
  (response as ServerResponse).destroy();
}
