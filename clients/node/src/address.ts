import { isIPv6 } from 'node:net';

const MAPPED_IPV4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

/**
 * Whom to count at an address: an IPv4 address itself, and of an IPv6 address its network `/64`, because a client has all
 * 2^64 addresses of that. Node knows no address of a connection that is gone.
 */
export function network(address = ''): string {
  const mapped = MAPPED_IPV4.exec(address);
  if (mapped) return mapped[1]!;
  if (!isIPv6(address)) return address;
  const [withoutZone] = address.split('%');
  const shortest = new URL(`http://[${withoutZone}]`).hostname.slice(1, -1);
  const [left = '', right = ''] = shortest.split('::');
  const [first, last] = [left, right].map((side) => (side ? side.split(':') : []));
  const zeros = Array<string>(8 - first!.length - last!.length).fill('0');
  return `${[...first!, ...zeros, ...last!].slice(0, 4).join(':')}::/64`;
}
