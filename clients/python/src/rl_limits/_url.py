"""Clients of redis-py that the package makes itself: short time-outs, one try."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from . import _given as given
from ._options import TIMEOUT_S, Options, Settings, UrlOptions, settings

#: A cluster's node gets this part of the time-out. The rest is for finding another node that serves the key.
OF_NODE = 0.4
#: With asyncio the limiter itself bounds a command, and allows for a loop that is late. So the client's own time-outs
#: are longer.
LATER = 4

CLUSTER = "redis+cluster://"


def connector(url: str, options: UrlOptions, *, asynchronous: bool) -> tuple[Callable[[], Any], Options, float]:
    """A function that makes the client, the options of the limiter, and its time-out."""
    given.known(options, UrlOptions.__annotations__)
    of_client = {name: value for name, value in options.items() if name not in Options.__annotations__}
    of_limiter = cast(Options, {name: value for name, value in options.items() if name in Options.__annotations__})
    chosen = settings(of_limiter)
    if isinstance(most := of_client.get("max_connections"), int):
        of_limiter["concurrency"] = min(chosen.concurrency, most)
    timeout_s = cast(float, of_client.pop("timeout", TIMEOUT_S))
    given.seconds("timeout", timeout_s)
    clustered = url.startswith(CLUSTER)
    library: Any = redis.asyncio if asynchronous else redis
    kind = library.RedisCluster if clustered else library.Redis
    defaults = _defaults(chosen, timeout_s, clustered=clustered, asynchronous=asynchronous)
    make = partial(kind.from_url, url.replace(CLUSTER, "redis://", 1), **{**defaults, **of_client})
    if not clustered:
        _prove(make())
    return make, of_limiter, timeout_s


def _defaults(chosen: Settings, timeout_s: float, *, clustered: bool, asynchronous: bool) -> dict[str, Any]:
    once_s = timeout_s * OF_NODE if clustered else timeout_s * LATER if asynchronous else timeout_s
    return {
        "socket_timeout": once_s,
        "socket_connect_timeout": once_s,
        "retry": (AsyncRetry if asynchronous else Retry)(NoBackoff(), 0),
        # Each command needs a connection, and the application may use the client too.
        "max_connections": chosen.concurrency * 2,
    }


def _prove(client: Any) -> None:
    """Raises an error about a wrong option now: a pool would raise it only when it connects."""
    pool = client.connection_pool
    options: Mapping[str, Any] = pool.connection_kwargs
    pool.connection_class(**options)
