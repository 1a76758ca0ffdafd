"""More requests at once than connections: the process's own load, which is no outage."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from servers import Server

import rl_limits.storage  # noqa: F401  registers its schemes
from rl_limits import AsyncRateLimiter, RateLimiter, Reply, Saturated

#: A busy machine may take longer than an application should wait.
PATIENT = {"timeout": 5.0, "queue_timeout": 60.0}
FEW = 10


def in_threads(limiter: RateLimiter, n: int, key: str = "k") -> list[Reply]:
    with ThreadPoolExecutor(n) as threads:
        return list(threads.map(lambda _: limiter.check(key, "50/h"), range(n)))


async def in_tasks(limiter: AsyncRateLimiter, n: int, key: str = "k") -> list[Reply]:
    return await asyncio.gather(*(limiter.check(key, "50/h") for _ in range(n)))


def connections(server: Server) -> int:
    with server.client() as client:
        return int(client.info("stats")["total_connections_received"])


def decided_by_the_server(limiter: RateLimiter | AsyncRateLimiter, answers: list[Reply]) -> None:
    assert Counter(answer.source for answer in answers) == {"server": len(answers)}
    assert sum(answer.allowed for answer in answers) == 50
    assert (limiter.outages, limiter.away) == (0, False)


@pytest.mark.parametrize("n", [300, 1500])
def test_the_server_decides_for_many_threads_at_once(newest: Server, n: int) -> None:
    with RateLimiter.from_url(newest.url, outage="allow", **PATIENT) as limiter:
        decided_by_the_server(limiter, in_threads(limiter, n))


@pytest.mark.parametrize("n", [300, 1500])
async def test_the_server_decides_for_many_tasks_at_once(newest: Server, n: int) -> None:
    before = connections(newest)
    async with AsyncRateLimiter.from_url(newest.url, outage="allow", **PATIENT) as limiter:
        decided_by_the_server(limiter, await in_tasks(limiter, n))
    assert connections(newest) - before < 60, "no storm of connections"


@pytest.mark.parametrize("n", [300, 1500])
async def test_a_cluster_decides_for_many_threads_and_tasks_at_once(cluster: list[Server], n: int) -> None:
    url = cluster[0].url.replace("redis:", "redis+cluster:")
    with RateLimiter.from_url(url, outage="allow", **PATIENT) as limiter:
        decided_by_the_server(limiter, in_threads(limiter, n))
    async with AsyncRateLimiter.from_url(url, outage="allow", **PATIENT) as async_limiter:
        decided_by_the_server(async_limiter, await in_tasks(async_limiter, n, "k2"))


CLIENTS: dict[str, Callable[[int], Any]] = {
    "redis": lambda port: redis.Redis(port=port, max_connections=FEW),
    "valkey": lambda port: valkey.Valkey(port=port, max_connections=FEW),
    "blocking": lambda port: redis.Redis(connection_pool=redis.BlockingConnectionPool(FEW, port=port)),
}
ASYNC_CLIENTS: dict[str, Callable[[int], Any]] = {
    "redis": lambda port: redis.asyncio.Redis(port=port, max_connections=FEW),
    "valkey": lambda port: valkey.asyncio.Valkey(port=port, max_connections=FEW),
    "blocking": lambda port: redis.asyncio.Redis(connection_pool=redis.asyncio.BlockingConnectionPool(FEW, port=port)),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_few_connections_carry_many_threads(newest: Server, name: str) -> None:
    limiter = RateLimiter(CLIENTS[name](newest.port), outage="allow", queue_timeout=60)
    decided_by_the_server(limiter, in_threads(limiter, 300))
    limiter.client.close()


@pytest.mark.parametrize("name", ASYNC_CLIENTS)
async def test_few_connections_carry_many_tasks(newest: Server, name: str) -> None:
    limiter = AsyncRateLimiter(ASYNC_CLIENTS[name](newest.port), outage="allow", **PATIENT)
    decided_by_the_server(limiter, await in_tasks(limiter, 300))
    await limiter.client.aclose()


async def test_without_a_queue_timeout_no_command_waits_for_a_place(newest: Server) -> None:
    options: Any = {"concurrency": 1, "queue_timeout": 0, "timeout": 5}
    with RateLimiter.from_url(newest.url, **options) as limiter:
        async with AsyncRateLimiter.from_url(newest.url, **options) as asynchronous:
            assert limiter.check("k", "5/m").allowed and (await asynchronous.check("k", "5/m")).allowed
            with newest.paused():
                first = asyncio.create_task(asyncio.to_thread(limiter.check, "k", "5/m"))
                others = [asyncio.create_task(asynchronous.check("k", "5/m")) for _ in range(2)]
                await asyncio.sleep(0.1)
                began_s = time.monotonic()
                with pytest.raises(Saturated):
                    limiter.check("k", "5/m")
                with pytest.raises(Saturated):
                    await others[1]
                assert time.monotonic() - began_s < 2
            assert (await first).allowed and (await others[0]).allowed


async def test_a_busy_loop_is_no_outage(newest: Server) -> None:
    async with AsyncRateLimiter.from_url(newest.url, outage="allow") as limiter:
        while (await limiter.check("k", "1000/m")).source != "server":
            pass
        for _ in range(5):
            check = asyncio.create_task(limiter.check("k", "1000/m"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(0.4)  # longer than the time-out, amid the command
            assert (await check).source == "server"
