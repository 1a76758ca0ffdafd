from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address


def network(address: str) -> str:
    """Whom to count at an address: an IPv4 address itself, and of an IPv6 address its network `/64`, because a client
    has all 2^64 addresses of that. What is no address stays as it is."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((parsed, 64), strict=False))
