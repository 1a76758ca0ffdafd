"""How to make connections: from a URL, with short time-outs and one try, or as a client of the application does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import redis
import redis.asyncio

from . import _given as given
from ._links import Wiring
from ._options import TIMEOUT_S, Options, UrlOptions, settings

CLUSTER = "redis+cluster://"
#: Options that only a client of a cluster has.
OF_CLUSTER = ("address_remap", "dynamic_startup_nodes", "reinitialize_steps", "require_full_coverage")


def from_url(url: str, options: UrlOptions, *, asynchronous: bool) -> tuple[Wiring, Callable[[], Any], Options, float]:
    """How to connect, a function that makes a client, the options of the limiter, and its time-out."""
    given.known(options, UrlOptions.__annotations__)
    of_client = {name: value for name, value in options.items() if name not in Options.__annotations__}
    of_limiter = cast(Options, {name: value for name, value in options.items() if name in Options.__annotations__})
    chosen = settings(of_limiter)
    if isinstance(most := of_client.get("max_connections"), int):
        of_limiter["concurrency"] = min(chosen.concurrency, most)
    timeout_s = cast(float, of_client.pop("timeout", TIMEOUT_S))
    given.seconds("timeout", timeout_s)
    # RESP2 needs fewer round trips to connect.
    of_client = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "protocol": 2, **of_client}
    library: Any = redis.asyncio if asynchronous else redis
    clustered = url.startswith(CLUSTER)
    url = url.replace(CLUSTER, "redis://", 1)
    of_one = {name: value for name, value in of_client.items() if not clustered or name not in OF_CLUSTER}
    make = partial(library.Redis.from_url, url, **of_one)
    wiring = of_pool(make().connection_pool)
    wiring.kind(**wiring.options)  # raises an error about a wrong option now, not when it connects
    if clustered:
        seed = wiring.options.get("host", "localhost"), wiring.options.get("port", 6379)
        remap = cast(Any, of_client.get("address_remap"))
        options_of_nodes = {name: value for name, value in wiring.options.items() if name != "db"}
        wiring = Wiring(wiring.kind, options_of_nodes, [seed], remap)
        make = partial(library.RedisCluster.from_url, url, **of_client)
    return wiring, make, of_limiter, timeout_s


def of_client(client: Any) -> Wiring:
    """As a client of redis-py or valkey-py connects."""
    if not hasattr(client, "get_node_from_key"):
        return of_pool(client.connection_pool)
    manager, options = client.nodes_manager, dict(client.get_connection_kwargs())
    nodes = list(manager.startup_nodes.values())
    seeds = [(node.host, node.port) for node in nodes]
    if hasattr(nodes[0], "connection_class"):  # of asyncio
        wiring = Wiring(nodes[0].connection_class, nodes[0].connection_kwargs)
    else:
        make = getattr(manager, "create_redis_node", None) or manager.create_valkey_node
        wiring = of_pool(make(*seeds[0], **options).connection_pool)
    return wiring._replace(seeds=seeds, remap=manager.address_remap)


def of_pool(pool: Any) -> Wiring:
    options: Mapping[str, Any] = pool.connection_kwargs
    return Wiring(pool.connection_class, dict(options))


def most_connections(client: Any, concurrency: int) -> int:
    """The number of the client's connections, but at most `concurrency`."""
    most = getattr(getattr(client, "connection_pool", None), "max_connections", None)
    return min(concurrency, most) if isinstance(most, int) else concurrency
