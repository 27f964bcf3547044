/** The way to a node: Connect over HTTP/2 with mutual TLS, or over HTTP/1.1 on this machine. */
import { Agent } from 'node:http';
import { type Client, createClient } from '@connectrpc/connect';
import { createConnectTransport, Http2SessionManager } from '@connectrpc/connect-node';
import { invalid } from '../domain/errors.ts';
import { BoundaryService } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { repeatCutOff } from '../transport/cut-off.ts';

/** PEM texts. The certificate says zone and role: `spiffe://<trust-domain>/zone/<slug>/<producer|consumer>`. */
export interface TlsOptions {
  readonly key: string;
  readonly cert: string;
  /** Who signs the node's certificate. */
  readonly ca: string;
  /** The name in the node's certificate, where it is not the one in the URL. */
  readonly serverName?: string;
}

export interface ConnectionOptions {
  /** `https://node.example:7443`. `http://` is for a node on this machine: loopback only. */
  readonly url: string;
  /** Needed for `https://`. */
  readonly tls?: TlsOptions;
  /** A call that takes longer is given up; with an outbox it is made again. Default 30,000. */
  readonly timeoutMs?: number;
}

export type NodeClient = Client<typeof BoundaryService>;

const local = new Set(['localhost', '127.0.0.1', '[::1]']);
/** A line that is dead is noticed after this and as long again. */
const pingMs = 10_000;
/** Of one message, on both ways; the node has the same limit. */
const maxMessageBytes = 4 * 1024 * 1024;

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #url: URL;
  #client: NodeClient;
  #end: () => void;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#url = checkedUrl(options);
    const { client, end } = this.#open(options.tls);
    this.#client = client;
    this.#end = end;
  }

  get client(): NodeClient {
    return this.#client;
  }

  /** Goes on with new certificates. Calls under way end with the old ones. */
  renew(tls: TlsOptions): void {
    if (this.#url.protocol !== 'https:') throw invalid('tls', `does not fit ${this.#url.origin}`);
    // As long as the slowest call may take.
    setTimeout(this.#end, this.#options.timeoutMs ?? defaultTimeoutMs).unref();
    const { client, end } = this.#open(tls);
    this.#client = client;
    this.#end = end;
  }

  close(): void {
    this.#end();
  }

  #open(tls: TlsOptions | undefined): { client: NodeClient; end: () => void } {
    const common = {
      baseUrl: this.#url.origin,
      useBinaryFormat: true,
      readMaxBytes: maxMessageBytes,
      writeMaxBytes: maxMessageBytes,
      defaultTimeoutMs: this.#options.timeoutMs ?? defaultTimeoutMs,
    };
    if (!tls) {
      const agent = new Agent({ keepAlive: true });
      const transport = createConnectTransport({ ...common, httpVersion: '1.1', nodeOptions: { agent } });
      return { client: createClient(BoundaryService, transport), end: () => agent.destroy() };
    }
    const { key, cert, ca, serverName } = tls;
    const sessionManager = new Http2SessionManager(
      this.#url.origin,
      { pingIntervalMs: pingMs, pingTimeoutMs: pingMs },
      { key, cert, ca, minVersion: 'TLSv1.2', ...(serverName !== undefined && { servername: serverName }) },
    );
    const transport = createConnectTransport({
      ...common,
      httpVersion: '2',
      sessionManager,
      interceptors: [repeatCutOff],
    });
    return { client: createClient(BoundaryService, transport), end: () => sessionManager.abort() };
  }
}

const defaultTimeoutMs = 30_000;

function checkedUrl({ url, tls }: ConnectionOptions): URL {
  if (!URL.canParse(url)) throw invalid('url', `is not a URL: ${JSON.stringify(url)}`);
  const parsed = new URL(url);
  if (parsed.protocol !== 'https:' && parsed.protocol !== 'http:')
    throw invalid('url', `must begin with https:// or http://, got "${url}"`);
  if (parsed.pathname !== '/' || parsed.search !== '' || parsed.hash !== '' || parsed.username !== '')
    throw invalid('url', 'must be scheme, host and port only, such as https://node.example:7443');
  if (parsed.protocol === 'https:') {
    if (!tls) throw invalid('tls', 'is missing: a node asks its callers for a certificate');
    return parsed;
  }
  if (tls) throw invalid('url', `must begin with https:// where certificates are given, got "${url}"`);
  if (!local.has(parsed.hostname))
    throw invalid('url', `"${url}" is not on this machine: use https:// and certificates`);
  return parsed;
}
