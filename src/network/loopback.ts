import { BlockList, isIP } from 'node:net';

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** Of an address as sockets tell it: an IPv4 peer of an IPv6 socket is `::ffff:127.0.0.1`. */
export function isLoopbackAddress(address: string): boolean {
  const bare = address.replace(/^::ffff:(?=\d+\.)/i, '').split('%', 1)[0] ?? '';
  const version = isIP(bare);
  return version !== 0 && loopback.check(bare, version === 4 ? 'ipv4' : 'ipv6');
}

/** Of a name or address to listen on or to connect to. */
export const isLoopbackHost = (host: string): boolean => host === 'localhost' || isLoopbackAddress(host);
