"""Limiters that wait longer than applications should: other tests keep the machine busy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from servers import Server

from rl_limits import AsyncRateLimiter, RateLimiter


def of(server: Server, **options: Any) -> RateLimiter:
    return RateLimiter.from_url(server.url, socket_timeout=5, socket_connect_timeout=5, **options)


@asynccontextmanager
async def async_of(server: Server, **options: Any) -> AsyncIterator[AsyncRateLimiter]:
    timeouts = {"timeout": 5, "socket_timeout": 5, "socket_connect_timeout": 5}
    async with AsyncRateLimiter.from_url(server.url, **timeouts, **options) as limiter:
        yield limiter
