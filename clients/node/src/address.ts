import { isIPv4, isIPv6 } from 'node:net';

const MAPPED_IPV4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;
const WITH_PORT = /^(?:\[(.*)\]|(\d+\.\d+\.\d+\.\d+))(?::\d+)?$/;

/**
 * Whom to count at an address, with or without a port: an IPv4 address itself, and of an IPv6 address its network, because a
 * client has all 2^64 addresses of a `/64`. A Unix socket, or a connection that is gone, has no address: `unknown`.
 */
export function network(given?: string | null, prefix = 64): string {
  if (!given) return 'unknown';
  const [, inBrackets, ipv4] = WITH_PORT.exec(given) ?? [];
  const address = inBrackets ?? ipv4 ?? given;
  const mapped = MAPPED_IPV4.exec(address)?.[1] ?? address;
  if (isIPv4(mapped) || !isIPv6(mapped)) return mapped;
  const [withoutZone] = mapped.split('%');
  const shortest = new URL(`http://[${withoutZone}]`).hostname.slice(1, -1);
  const [left = '', right = ''] = shortest.split('::');
  const [first, last] = [left, right].map((side) => (side ? side.split(':') : []));
  const zeros = Array<string>(8 - first!.length - last!.length).fill('0');
  const parts = [...first!, ...zeros, ...last!].slice(0, Math.ceil(prefix / 16)).map((part) => parseInt(part, 16));
  if (prefix % 16) parts[parts.length - 1]! &= 0xffff << (16 - (prefix % 16));
  return `${parts.map((part) => part.toString(16)).join(':')}${prefix > 112 ? '' : '::'}/${prefix}`;
}
