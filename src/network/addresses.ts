import { BlockList, isIP } from 'node:net';
import { TallymanError } from '../engine/errors.ts';

export interface AddressPolicyOptions {
  /** True: any address. A list: these networks beside the public ones, such as `10.1.0.0/16`. Default false. */
  readonly allowPrivate?: boolean | readonly string[];
  /** Default true. */
  readonly requireHttps?: boolean;
  /** How messages name the address, and the settings that decide. Default: those of webhooks. */
  readonly names?: PolicyNames;
}

export interface PolicyNames {
  readonly address: string;
  readonly allowPrivate: string;
  readonly requireHttps: string;
}

const ofWebhooks: PolicyNames = {
  address: 'the webhook address',
  allowPrivate: 'webhooks.allowPrivateAddresses',
  requireHttps: 'webhooks.requireHttps',
};

// IPv4 by a deny list: https://www.iana.org/assignments/iana-ipv4-special-registry, and the metadata addresses of clouds.
const refused4: readonly (readonly [network: string, why: string])[] = [
  ['0.0.0.0/8', 'unspecified'],
  ['10.0.0.0/8', 'private'],
  ['100.64.0.0/10', 'carrier-grade NAT'],
  ['127.0.0.0/8', 'loopback'],
  ['168.63.129.16/32', 'a metadata service'],
  ['169.254.0.0/16', 'link-local, where metadata services are'],
  ['172.16.0.0/12', 'private'],
  ['192.0.0.0/24', 'reserved'],
  ['192.0.2.0/24', 'for documentation'],
  ['192.88.99.0/24', 'a 6to4 relay'],
  ['192.168.0.0/16', 'private'],
  ['198.18.0.0/15', 'for benchmarks'],
  ['198.51.100.0/24', 'for documentation'],
  ['203.0.113.0/24', 'for documentation'],
  ['224.0.0.0/4', 'multicast'],
  ['240.0.0.0/4', 'reserved or broadcast'],
];

// IPv6 by an allow list: 2000::/3, without ranges that embed another address or are not on the internet. Mapped (::ffff:),
// compatible, NAT64, unique local, link-local, multicast and loopback addresses are all outside it.
const refused6: readonly (readonly [network: string, why: string])[] = [
  ['2001::/23', 'reserved (Teredo and others)'],
  ['2001:db8::/32', 'for documentation'],
  ['2002::/16', '6to4'],
  ['3fff::/20', 'for documentation'],
];

const lists4 = refused4.map(([network, why]) => ({ list: listOf([network]), why }));
const lists6 = refused6.map(([network, why]) => ({ list: listOf([network]), why }));
const global6 = listOf(['2000::/3']);

/** Which addresses may be connected to for a tenant. */
export class AddressPolicy {
  readonly requireHttps: boolean;
  readonly names: PolicyNames;
  /** Any private address, or some. */
  readonly allowsPrivate: boolean;
  readonly #any: boolean;
  readonly #allowed: BlockList;

  constructor({ allowPrivate = false, requireHttps = true, names = ofWebhooks }: AddressPolicyOptions = {}) {
    this.requireHttps = requireHttps;
    this.names = names;
    this.allowsPrivate = allowPrivate === true || (allowPrivate !== false && allowPrivate.length > 0);
    this.#any = allowPrivate === true;
    this.#allowed = listOf(typeof allowPrivate === 'boolean' ? [] : allowPrivate);
  }

  /** The reason why it is refused; undefined if it is allowed. */
  refusal(address: string): string | undefined {
    const bare = address.split('%', 1)[0] ?? '';
    const version = isIP(bare);
    if (version === 0) return 'not an IP address';
    const family = version === 4 ? 'ipv4' : 'ipv6';
    if (this.#any || this.#allowed.check(bare, family)) return undefined;
    if (version === 6 && !global6.check(bare, family)) return 'not a public IPv6 address';
    return (version === 4 ? lists4 : lists6).find(({ list }) => list.check(bare, family))?.why;
  }
}

/** @example listOf(['10.0.0.0/8', 'fd00::/8']) */
function listOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', prefix] = network.trim().split('/');
    const version = isIP(address);
    const bits = version === 4 ? 32 : 128;
    const length = prefix === undefined ? bits : Number(prefix);
    if (version === 0 || !Number.isInteger(length) || length < 0 || length > bits || prefix === '')
      throw new TallymanError(
        'BAD_OPTION',
        `"${network}" is not a network: expected one such as 10.1.0.0/16 or fd00::/8`,
      );
    list.addSubnet(address, length, version === 4 ? 'ipv4' : 'ipv6');
  }
  return list;
}
