from __future__ import annotations

import re
from ipaddress import IPv6Address, IPv6Network, ip_address

# An address with a port, as some proxies and servers give it.
WITH_PORT = re.compile(r"\[([^]]*)\](?::\d+)?|([\d.]+):\d+")


def network(address: str | None, prefix: int = 64) -> str:
    """Whom to count at an address: an IPv4 address itself, and of an IPv6 address its network, because a client has all
    2^64 addresses of that. A port is left out. What is no address stays as it is; without any, as behind a unix socket,
    it is `unknown`."""
    if not address:
        return "unknown"
    found = WITH_PORT.fullmatch(address)
    bare = (found[1] or found[2]) if found else address
    try:
        parsed = ip_address(bare.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((parsed, prefix), strict=False))
