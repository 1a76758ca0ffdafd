"""Limiters on clients that ask a sentinel for the primary."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from inspect import iscoroutinefunction
from typing import Any

import pytest
import redis.asyncio.sentinel
import redis.sentinel
import servers
import valkey.asyncio.sentinel
import valkey.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

import sentinels
from rl_limits import AsyncRateLimiter, RateLimiter

TIMEOUT_S = 2


def limiters(port: int) -> list[RateLimiter | AsyncRateLimiter]:
    """On clients of each library, which ask the sentinel at this port."""
    options = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
    once, once_async = ({**options, "retry": retry(NoBackoff(), 0)} for retry in (Retry, AsyncRetry))

    def client(library: Any, options: dict[str, Any]) -> Any:
        group = library.sentinel.Sentinel([("127.0.0.1", port)], sentinel_kwargs=options)
        return group.master_for(sentinels.GROUP, **options)

    return [
        RateLimiter(client(redis, once), outage="allow"),
        RateLimiter(client(valkey, options), outage="allow"),
        AsyncRateLimiter(client(redis.asyncio, once_async), outage="allow", timeout=TIMEOUT_S),
        AsyncRateLimiter(client(valkey.asyncio, options), outage="allow", timeout=TIMEOUT_S),
    ]


async def ask(method: Callable[..., Any], *words: Any) -> Any:
    return await (method(*words) if iscoroutinefunction(method) else asyncio.to_thread(method, *words))


async def serves(limiter: RateLimiter | AsyncRateLimiter) -> None:
    async with asyncio.timeout(servers.READY_S):
        while (await ask(limiter.check, "other", "1000/h")).source != "server":
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("loss", ["killed", "hung"])
async def test_the_new_primary_goes_on_with_the_counts_of_the_old_one(loss: str) -> None:
    with sentinels.start() as watched, watched.replica.client() as replica:
        found = {f"k{i}": limiter for i, limiter in enumerate(limiters(watched.sentinel.port))}

        async def all_of(name: str, *words: Any) -> list[Any]:
            return await asyncio.gather(*(ask(getattr(one, name), key, *words) for key, one in found.items()))

        await asyncio.gather(*map(serves, found.values()))
        assert [reply.remaining for reply in await all_of("check", "9/h")] == [8] * 4
        servers.until(lambda: [replica.execute_command("RL.PEEK", key, "9/h")[2] for key in found] == [8] * 4)
        if loss == "killed":
            watched.primary.stop()
        with watched.primary.paused() if loss == "hung" else nullcontext():
            assert {reply.source for reply in await all_of("check", "9/h")} == {"outage"}
            watched.fail_over()
            await asyncio.gather(*map(serves, found.values()))
            assert [(reply.source, reply.remaining) for reply in await all_of("peek", "9/h")] == [("server", 8)] * 4
            assert [reply.remaining for reply in await all_of("wait", "9/h", 1)] == [7] * 4
        for limiter in found.values():
            if isinstance(limiter, AsyncRateLimiter):
                await limiter.client.aclose()
