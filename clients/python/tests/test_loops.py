"""Event loops that end, and loops that run only during calls, as `asyncio.run` for each call makes them."""

import asyncio
import gc
import weakref

import pytest
from servers import Server, until

from rl_limits import AsyncLease, AsyncRateLimiter


def connected(server: Server) -> int:
    with server.client() as client:
        return int(client.info("clients")["connected_clients"]) - 1


@pytest.mark.parametrize("cancels", [True, False])
def test_a_closed_loop_leaves_no_connection_and_no_memory(newest: Server, cancels: bool) -> None:
    limiter, before = AsyncRateLimiter.from_url(newest.url, timeout=5), connected(newest)
    lease = AsyncLease(limiter, "leased", "1000/d")
    loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    async def work() -> None:
        loops.add(asyncio.get_running_loop())
        assert (await limiter.check("k", "1000/d")).allowed and (await lease.take()).allowed
        assert await limiter.client.ping()
        await limiter.client.aclose()

    gc.disable()
    try:
        for _ in range(20):
            if cancels:
                asyncio.run(work())
            else:
                loop = asyncio.new_event_loop()
                loop.run_until_complete(work())
                loop.close()
        until(lambda: connected(newest) <= before + 2)  # those of the last loop, until the next one
    finally:
        gc.enable()
    gc.collect()
    assert len(loops) <= 2
