// Allowed targets of webhooks: public addresses, and networks that the operator lists. This prevents SSRF: an author of
// a webhook must not reach internal services through this machine. Addresses that cannot be classified are refused.
// Metadata services, which hand out a machine's credentials, are never allowed.

import { BlockList, isIP } from 'node:net';

import { refuse } from '../../core/options.js';

/** IPv4 networks that are not public, from the registry of special-purpose addresses. */
const special4 = [
  '0.0.0.0/8', // this host: connects to loopback
  '10.0.0.0/8', // private
  '100.64.0.0/10', // carrier-grade NAT
  '127.0.0.0/8', // loopback
  '169.254.0.0/16', // link-local
  '172.16.0.0/12', // private
  '192.0.0.0/24', // protocol assignments
  '192.0.2.0/24', // documentation
  '192.88.99.0/24', // relays of 6to4
  '192.168.0.0/16', // private
  '198.18.0.0/15', // benchmarking
  '198.51.100.0/24', // documentation
  '203.0.113.0/24', // documentation
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, and broadcast
];

/**
 * The public part of IPv6. Outside are loopback, IPv4-mapped and -compatible addresses, NAT64 (64:ff9b::/96 and
 * 64:ff9b:1::/48), discard (100::/64), SRv6 (5f00::/16), unique local (fc00::/7), link-local (fe80::/10), site-local
 * (fec0::/10), multicast (ff00::/8), and ranges that are not assigned yet.
 */
const unicast6 = ['2000::/3'];

/** Networks inside it that are not public. */
const special6 = [
  '2001::/23', // protocol assignments: Teredo, benchmarking, ORCHID
  '2001:db8::/32', // documentation
  '2002::/16', // 6to4: contains an IPv4 address
  '3ffe::/16', // the former 6bone
  '3fff::/20', // documentation
];

/** Never allowed, even if listed: metadata services, and link-local networks, where more of them are. */
const never4 = [
  '169.254.0.0/16', // AWS, Azure, Google, Oracle, OpenStack, DigitalOcean; credentials of containers
  '100.100.100.200/32', // Alibaba
  '168.63.129.16/32', // Azure, although it is a public address
  '192.0.0.192/32', // Oracle, the older address
];
const never6 = [
  'fe80::/10',
  'fd00:ec2::/32', // AWS: metadata, credentials of pods, name server
  'fd20:ce::254/128', // Google
  'fd00:42::42/128', // Scaleway
  'fd00:c1::a9fe:a9fe/128', // Oracle
  ...never4.flatMap(embedded),
];

/** IPv6 forms that contain an IPv4 network: mapped, compatible, translated, NAT64, 6to4. */
function embedded(network: string): string[] {
  const [address = '', prefix = ''] = network.split('/');
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  const high = ((a << 8) | b).toString(16);
  const low = ((c << 8) | d).toString(16);
  return [
    ...['::ffff:', '::', '::ffff:0:', '64:ff9b::', '64:ff9b:1::'].map(
      (before) => `${before}${high}:${low}/${96 + Number(prefix)}`,
    ),
    `2002:${high}:${low}::/${16 + Number(prefix)}`,
  ];
}

/** One list per family: BlockList would treat an IPv4-mapped address as the IPv4 address in it. */
export class Networks {
  readonly #lists = { 4: new BlockList(), 6: new BlockList() };

  constructor(networks: readonly string[]) {
    for (const network of networks) {
      const [address = '', prefix] = network.split('/');
      const family = isIP(address);
      if (family !== 4 && family !== 6) continue;
      const bits = prefix === undefined ? { 4: 32, 6: 128 }[family] : Number(prefix);
      this.#lists[family].addSubnet(address, bits, `ipv${family}`);
    }
  }

  has(address: string, family: 4 | 6): boolean {
    return this.#lists[family].check(address, `ipv${family}`);
  }
}

const never = new Networks([...never4, ...never6]);
const special = new Networks([...special4, ...special6]);
const unicast = new Networks(['0.0.0.0/0', ...unicast6]);

/** Why this address is refused, as a text that follows "it"; undefined if it is allowed. */
export function problemWith(address: string, allowed: Networks): string | undefined {
  const family = isIP(address);
  // a zone names an interface of this machine
  if ((family !== 4 && family !== 6) || address.includes('%')) return 'is no address';
  if (never.has(address, family))
    return 'is link-local or a metadata service, which are never used';
  if (allowed.has(address, family)) return undefined;
  return unicast.has(address, family) && !special.has(address, family)
    ? undefined
    : 'is not a public address, and in none of allowedNetworks';
}

/** The name of a webhook leads to a forbidden address. Retried, because its owner may correct the DNS entry. */
export class TargetRefusedError extends Error {}

/** Option kind: networks such as 10.0.0.0/8, or single addresses. */
export function allowedNetworks(name: string, value: unknown): Networks {
  if (value === undefined) return new Networks([]);
  if (!Array.isArray(value) || value.length > 1000)
    return refuse(name, value, "give a list of networks, such as ['10.0.0.0/8']");
  for (const [index, network] of value.entries()) {
    if (!isNetwork(network))
      refuse(`${name}[${index}]`, network, 'give a network such as 10.0.0.0/8 or fd00::/8');
  }
  return new Networks(value as string[]);
}

function isNetwork(value: unknown): boolean {
  if (typeof value !== 'string') return false;
  const [address = '', prefix, ...rest] = value.split('/');
  const family = isIP(address);
  if (family === 0 || address.includes('%') || rest.length > 0) return false;
  return (
    prefix === undefined ||
    (/^(0|[1-9]\d{0,2})$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128))
  );
}
