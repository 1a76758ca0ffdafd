"""Whom to count at an address."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from . import _given as given
from ._errors import LOG

# An address with a port, as some proxies and servers give it.
WITH_PORT = re.compile(r"\[([^]]*)\](?::\d+)?|([\d.]+):\d+")

#: Networks whose last 32 bits are an IPv4 address: mapped, translated, and NAT64.
OF_IPV4 = [IPv6Network(network) for network in ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")]

UNKNOWN = "unknown"


def network(address: str | None, prefix: int = 64) -> str:
    """Whom to count at an address: an IPv4 address itself, or the network of an IPv6 address, because a client has all
    of its 2^64 addresses. A port is dropped. A text that is no address stays as it is; without an address, as behind a
    unix socket, the result is `unknown`."""
    given.whole("prefix", prefix, 0, 128)
    if not address:
        return UNKNOWN
    found = WITH_PORT.fullmatch(address)
    bare = (found[1] or found[2]) if found else address
    try:
        parsed = ip_address(bare.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if any(parsed in network for network in OF_IPV4):
        return str(IPv4Address(parsed.packed[12:]))
    return str(IPv6Network((parsed, prefix), strict=False))


class Networks:
    """`network` for a middleware, which says once in the log that callers without an address share a key."""

    def __init__(self, prefix: int = 64) -> None:
        given.whole("prefix", prefix, 0, 128)
        self.prefix = prefix
        self._told = False

    def __call__(self, address: str | None) -> str:
        counted = network(address, self.prefix)
        if counted == UNKNOWN and not self._told:
            self._told = True
            LOG.warning(
                "callers without an address, as behind a unix socket, share the limit of `unknown`: give a key of yours"
            )
        return counted
