"""Clients of redis-py that the package makes itself: short time-outs, one try."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from ._bounded import BoundedCluster
from ._core import Options

#: For a command.
TIMEOUT_S = 0.25
#: For a node of a cluster, as a part of that. What is left finds another node that serves the key.
OF_NODE = 0.4

CLUSTER = "redis+cluster://"


def connector(url: str, options: dict[str, Any], *, asynchronous: bool) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What makes a client, and those of the options that are the limiter's."""
    of_limiter = {name: value for name, value in options.items() if name in Options.__annotations__}
    of_client = {name: value for name, value in options.items() if name not in of_limiter}
    timeout_s = of_client.pop("timeout", TIMEOUT_S)
    is_cluster = url.startswith(CLUSTER)
    library: Any = redis.asyncio if asynchronous else redis
    kind = library.RedisCluster if is_cluster else library.Redis
    if asynchronous:
        of_limiter["timeout"] = timeout_s
    elif is_cluster:
        kind, of_client["deadline_s"] = BoundedCluster, timeout_s
    once_s = timeout_s * OF_NODE if is_cluster else timeout_s
    retry = (AsyncRetry if asynchronous else Retry)(NoBackoff(), 0)
    defaults = {"socket_timeout": once_s, "socket_connect_timeout": once_s, "retry": retry}
    return partial(kind.from_url, url.replace(CLUSTER, "redis://", 1), **{**defaults, **of_client}), of_limiter
