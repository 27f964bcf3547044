import { isIP, isIPv6 } from 'node:net';

/**
 * Where a request comes from: the other end of the connection or, through a trusted proxy, the address that it names, which may
 * be any text. Null if the caller is gone.
 */
export function callerAddress({
  ip,
  socket,
}: {
  /** See `server.trustedProxies`. */
  readonly ip: string | undefined;
  readonly socket: { readonly remoteAddress?: string | undefined };
}): string | null {
  // Some proxies name the port, too.
  const bare = (ip ?? '').replace(/^\[(.+)\](:\d+)?$/, '$1').replace(/^([\d.]+):\d+$/, '$1');
  return isIP(bare) === 0 ? (socket.remoteAddress ?? null) : bare;
}

/**
 * What a stranger's limit is counted by: an IPv4 address, or the /64 of an IPv6 address. Whoever has one address of a /64
 * has all of them.
 */
export function callerNetwork(address: string): string {
  const ipv4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (ipv4 !== undefined) return ipv4;
  const [plain = ''] = address.split('%');
  if (!isIPv6(plain)) return address;
  const [head = '', tail = ''] = plain.split('::').map(withoutIpv4);
  const [before, after] = [groupsOf(head), groupsOf(tail)];
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => '0');
  const network = [...before, ...zeros, ...after].slice(0, 4);
  return `${network.map((group) => Number.parseInt(group, 16).toString(16)).join(':')}::/64`;
}

const groupsOf = (text: string): string[] => (text === '' ? [] : text.split(':'));

/** An IPv4 address at the end takes the place of two groups; they are never within the /64. */
const withoutIpv4 = (text: string): string => text.replace(/\d+\.\d+\.\d+\.\d+$/, '0:0');
