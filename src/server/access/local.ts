import type { IncomingHttpHeaders } from 'node:http';
import { isLoopbackAddress } from '../../network/loopback.ts';

export interface LocalRequest {
  /** `http` or `https`, as the server itself received it. */
  readonly protocol: string;
  /** The other end of the connection. */
  readonly peer: string | undefined;
  readonly headers: IncomingHttpHeaders;
}

/** A name that leads to this machine and no other, with or without a port. */
const localHost = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;

/** A proxy sends these for somebody else, who may be anywhere. */
const proxyHeaders = new Set([
  'forwarded',
  'via',
  'client-ip',
  'true-client-ip',
  'cf-connecting-ip',
  'fastly-client-ip',
  'x-real-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-original-forwarded-for',
  'x-original-host',
  'x-original-url',
  'x-rewrite-url',
  'x-proxyuser-ip',
  'x-envoy-external-address',
]);
const isProxyHeader = (name: string): boolean => proxyHeaders.has(name) || name.startsWith('x-forwarded');

/**
 * Why a request is not one of a program on this machine; undefined if it is. Other machines reach a loopback address in two
 * ways: through a proxy on this machine, and through a page in a browser on it, which may also let its own name lead to
 * loopback.
 */
export function notLocal({ protocol, peer, headers }: LocalRequest): string | undefined {
  if (peer === undefined || !isLoopbackAddress(peer)) return 'it comes from another machine';
  if (Object.keys(headers).some(isProxyHeader)) return 'it comes through a proxy';
  const { host = '', origin } = headers;
  if (!localHost.test(host)) return 'it is sent to a name other than localhost';
  const fetchSite = headers['sec-fetch-site'];
  if (fetchSite !== undefined && fetchSite !== 'same-origin' && fetchSite !== 'none')
    return 'it comes from a web page elsewhere';
  const own = new URL(`${protocol}://${host}`).origin;
  if (origin !== undefined && (!URL.canParse(origin) || new URL(origin).origin !== own))
    return 'it comes from a web page elsewhere';
  return undefined;
}
