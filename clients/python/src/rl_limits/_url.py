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

from ._core import Options

#: For connecting, and for a reply.
TIMEOUT_S = 0.25

CLUSTER = "redis+cluster://"
OF_LIMITER = {*Options.__annotations__, "timeout"}


def connector(url: str, options: dict[str, Any], *, asynchronous: bool) -> tuple[Callable[[], Any], dict[str, Any]]:
    """What makes a client, and those of the options that are the limiter's."""
    of_limiter = {name: value for name, value in options.items() if name in OF_LIMITER}
    of_client = {name: value for name, value in options.items() if name not in OF_LIMITER}
    library: Any = redis.asyncio if asynchronous else redis
    retry = (AsyncRetry if asynchronous else Retry)(NoBackoff(), 0)
    defaults = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "retry": retry}
    kind = library.RedisCluster if url.startswith(CLUSTER) else library.Redis
    return partial(kind.from_url, url.replace(CLUSTER, "redis://", 1), **{**defaults, **of_client}), of_limiter
