import { isIPv4, isIPv6 } from 'node:net';

import { inOrder, integer } from './options.js';

const WITH_PORT = /^(?:\[(.*)\]|(\d+\.\d+\.\d+\.\d+))(?::\d+)?$/;
/** The first 96 bits of IPv6 addresses that stand for one of IPv4: mapped, translated, and NAT64. */
const OF_IPV4 = ['0,0,0,0,0,65535', '0,0,0,0,65535,0', '100,65435,0,0,0,0'];

/** What a prefix of IPv6 can be. */
export const PREFIX = integer(0, 128);

/**
 * What identifies a client at an address, with or without a port: its IPv4 address, or the network of its IPv6 address, because a
 * client has all 2^64 addresses of a `/64`. A Unix socket, or a connection that is gone, has no address: `unknown`.
 */
export function network(given?: string | null, prefix = 64): string {
  inOrder('network', { prefix }, { prefix: PREFIX });
  if (!given) return 'unknown';
  const [, inBrackets, ipv4] = WITH_PORT.exec(given) ?? [];
  const address = inBrackets ?? ipv4 ?? given;
  if (isIPv4(address)) return address;
  if (!isIPv6(address)) return given;
  const parts = partsOf(shortest(address.replace(/%.*/, '')));
  if (OF_IPV4.includes(parts.slice(0, 6).join())) return parts.slice(6).flatMap((part) => [part >> 8, part & 255]).join('.');
  const kept = parts.map((part, i) => part & (0xffff << Math.min(16, Math.max(0, 16 * (i + 1) - prefix))));
  return `${shortest(kept.map((part) => part.toString(16)).join(':'))}/${prefix}`;
}

/** The eight parts of an address in its shortest form. */
function partsOf(address: string): number[] {
  const [left = [], right = []] = address.split('::').map((side) => (side ? side.split(':').map((part) => parseInt(part, 16)) : []));
  return [...left, ...Array<number>(8 - left.length - right.length).fill(0), ...right];
}

/** As RFC 5952 writes an address, which is how a URL has it. */
function shortest(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1);
}
