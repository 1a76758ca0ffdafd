#!/usr/bin/env python3
"""What a request costs while the server cannot decide: a figure of docs/operate/outages.md.

Each row makes 200 checks one after the other, or as many as fit into ten seconds: by this package, by redis-py alone,
and by `limits` as its documentation shows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "conformance/suite"))

import outages
from limits import RateLimitItemPerMinute
from limits.storage import storage_from_string
from limits.strategies import MovingWindowRateLimiter
from redis import Redis, RedisCluster

from rl_limits import AsyncRateLimiter, RateLimiter

REQUESTS = 200
PATIENCE_S = 10.0
ITEM = RateLimitItemPerMinute(20)


def ours(url: str) -> Callable[[], object]:
    limiter = RateLimiter.from_url(url, outage="local")
    return lambda: limiter.check("k", "20/m")


def ours_with_asyncio(url: str) -> Callable[[], object]:
    loop = asyncio.new_event_loop()

    async def made() -> AsyncRateLimiter:
        return AsyncRateLimiter.from_url(url, outage="local")

    limiter = loop.run_until_complete(made())
    return lambda: loop.run_until_complete(limiter.check("k", "20/m"))


def plain(url: str) -> Callable[[], object]:
    """redis-py alone, with short time-outs."""
    kind = RedisCluster if url.startswith("redis+cluster") else Redis
    redis = kind.from_url(url.replace("+cluster", ""), socket_timeout=0.1, socket_connect_timeout=0.1)
    return lambda: redis.execute_command("RL.CHECK", "k", "20/m")


def limits(url: str) -> Callable[[], object]:
    limiter = MovingWindowRateLimiter(storage_from_string(url))
    return lambda: limiter.hit(ITEM, "k")


def timed(make: Callable[[str], Callable[[], object]], url: str) -> Iterator[float]:
    ask = None
    late = time.monotonic() + PATIENCE_S
    for _ in range(REQUESTS):
        began = time.monotonic()
        with contextlib.suppress(Exception):  # an error takes time, too
            ask = ask or make(url)
            ask()
        yield time.monotonic() - began
        if time.monotonic() > late:
            return


def ms(s: float) -> str:
    return f"{s * 1000:.2f}" if s < 0.01 else f"{s * 1000:.0f}"


def main() -> None:
    print("| the server is | median ms | longest ms | requests | in s |\n|---|---|---|---|---|")
    for name, scene in {"fine": outages.fine, **outages.ALL}.items():
        with scene() as url:
            for make in (ours, ours_with_asyncio, plain, limits):
                took = list(timed(make, url))
                cells = [ms(statistics.median(took)), ms(max(took)), str(len(took)), f"{sum(took):.2f}"]
                print(f"| {name}: {make.__name__} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
