"""No check ever gets the verdict of another key, even while nodes stall and die and tasks are cancelled amid their
commands. Each key has its own limit, by which the tests recognize its replies."""

import asyncio
import random
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import redis.asyncio
import valkey.asyncio

import outages
from rl_limits import AsyncRateLimiter, RateLimiter, Reply
from servers import Server

KEYS = 97
SECONDS = 6
#: The limiter goes on asking, however often its commands fail.
NEVER = 1_000_000_000


def limit_of(n: int) -> int:
    return 1_000_000 + n


def rule_of(n: int) -> str:
    return f"window:{limit_of(n)}/d"


class Seen:
    """The number of right answers, and the wrong answers."""

    def __init__(self) -> None:
        self.right = 0
        self.wrong: list[object] = []

    def note(self, n: int, reply: Reply) -> None:
        if reply.source == "server":
            if reply.limit == limit_of(n):
                self.right += 1
            else:
                self.wrong.append((n, reply))


def disturb(nodes: list[Server], until_s: float) -> None:
    """Again and again stalls one or both of the first two nodes for longer than the time-outs. After half of the time
    the last node dies."""
    half_s = (time.monotonic() + until_s) / 2
    while time.monotonic() < until_s:
        with ExitStack() as stalled:
            for node in random.sample(nodes[:-1], random.choice([1, len(nodes) - 1])):
                stalled.enter_context(node.paused())
            time.sleep(random.uniform(0.05, 0.4))
        time.sleep(random.uniform(0.05, 0.2))
        if time.monotonic() > half_s:
            nodes[-1].stop()


def test_threads_mix_up_no_verdicts_while_nodes_stall_and_die() -> None:
    seen = Seen()
    with outages.cluster() as nodes:
        limiter = RateLimiter.from_url(nodes[0].url.replace("redis:", "redis+cluster:"), outage="allow")
        limiter.core.breaker.FAILURES = NEVER
        until_s = time.monotonic() + SECONDS

        def work() -> None:
            while time.monotonic() < until_s:
                n = random.randrange(KEYS)
                try:
                    seen.note(n, limiter.check(f"key:{n}", rule_of(n)))
                except Exception as error:
                    seen.wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        disturb(nodes, until_s)
        for thread in threads:
            thread.join()
    assert not seen.wrong and seen.right > 5, (seen.right, seen.wrong[:10])


ASYNC_CLIENTS: dict[str, Callable[[int], Any]] = {
    "redis": lambda port: redis.asyncio.Redis(port=port, socket_timeout=0.1),
    "valkey": lambda port: valkey.asyncio.Valkey(port=port, socket_timeout=0.1),
    "redis without time-outs": lambda port: redis.asyncio.Redis(port=port, max_connections=20),
}


@pytest.mark.parametrize("name", ASYNC_CLIENTS)
async def test_cancelled_tasks_mix_up_no_verdicts(newest: Server, name: str) -> None:
    limiter = AsyncRateLimiter(ASYNC_CLIENTS[name](newest.port), outage="allow")
    seen = Seen()
    await cancel_some(limiter, seen)
    assert not seen.wrong and seen.right > 5, (seen.right, seen.wrong[:10])
    await limiter.client.aclose()


@pytest.mark.parametrize("library, kind", [(redis.asyncio, "RedisCluster"), (valkey.asyncio, "ValkeyCluster")])
async def test_cancelled_tasks_of_a_cluster_mix_up_no_verdicts(cluster: list[Server], library: Any, kind: str) -> None:
    client = getattr(library, kind)(host="127.0.0.1", port=cluster[0].port, socket_timeout=0.1)
    limiter = AsyncRateLimiter(client, outage="allow")
    seen = Seen()
    await cancel_some(limiter, seen)
    assert not seen.wrong and seen.right > 5, (seen.right, seen.wrong[:10])
    await client.aclose()


async def test_tasks_mix_up_no_verdicts_while_nodes_stall_and_die() -> None:
    seen = Seen()
    with outages.cluster() as nodes:
        url = nodes[0].url.replace("redis:", "redis+cluster:")
        async with AsyncRateLimiter.from_url(url, outage="allow") as limiter:
            limiter.core.breaker.FAILURES = NEVER
            trouble = threading.Thread(target=disturb, args=(nodes, time.monotonic() + SECONDS))
            trouble.start()
            await cancel_some(limiter, seen)
            trouble.join()
    assert not seen.wrong and seen.right > 5, (seen.right, seen.wrong[:10])


async def cancel_some(limiter: AsyncRateLimiter, seen: Seen) -> None:
    until_s = time.monotonic() + SECONDS

    async def work() -> None:
        while time.monotonic() < until_s:
            n = random.randrange(KEYS)
            check = asyncio.create_task(limiter.check(f"key:{n}", rule_of(n)))
            if random.random() < 0.5:
                await asyncio.sleep(random.uniform(0, 0.004))
                check.cancel()
            try:
                seen.note(n, await check)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
            except Exception as error:
                seen.wrong.append("".join(traceback.format_exception(error)))

    await asyncio.gather(*(work() for _ in range(30)))
