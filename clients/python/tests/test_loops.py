"""Event loops that end, and loops that run only during calls, as `asyncio.run` for each call makes them."""

import asyncio
import gc
import time
import weakref

import pytest
from proxy import Proxy
from servers import Server, until

from rl_limits import AsyncHold, AsyncLease, AsyncRateLimiter
from test_holds import holds, left

#: Longer than the tests take.
TTL_S = 600


def connected(server: Server) -> int:
    with server.client() as client:
        return int(client.info("clients")["connected_clients"]) - 1


def allowing(proxy: Proxy) -> AsyncRateLimiter:
    return AsyncRateLimiter.from_url(proxy.url, timeout=5, outage="allow")


def taken(limiter: AsyncRateLimiter, loop: asyncio.AbstractEventLoop) -> AsyncHold:
    return loop.run_until_complete(limiter.hold("k", "slots:2,cost=1", ttl=TTL_S).__aenter__())


def leave(hold: AsyncHold, loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(hold.__aexit__(None, None, None))


def leave_unsettled(limiter: AsyncRateLimiter, proxy: Proxy) -> None:
    """A loop is closed while the settlement of its hold waits for the server."""
    loop = asyncio.new_event_loop()
    hold = taken(limiter, loop)
    with proxy.refused():
        leave(hold, loop)
    loop.close()


async def until_free(limiter: AsyncRateLimiter, server: Server) -> None:
    """Uses the limiter, and keeps the loop running until both slots are free."""
    await limiter.peek("other", "5/m")
    while left(server, rule="slots:2") < 2:
        await asyncio.sleep(0.02)
    await limiter.aclose()


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


def test_the_next_loop_settles_what_a_closed_one_left(newest: Server, proxy: Proxy) -> None:
    limiter = allowing(proxy)
    leave_unsettled(limiter, proxy)
    asyncio.run(asyncio.wait_for(until_free(limiter, newest), 30))


def test_the_next_short_loops_settle_what_one_left(newest: Server, proxy: Proxy) -> None:
    limiter = allowing(proxy)
    leave_unsettled(limiter, proxy)

    def calls_and_looks() -> bool:
        asyncio.run(limiter.peek("other", "5/m"))
        return left(newest, rule="slots:2") == 2

    until(calls_and_looks)


def test_a_loop_settles_what_one_that_no_longer_runs_left(newest: Server, proxy: Proxy) -> None:
    limiter, loops = allowing(proxy), [asyncio.new_event_loop() for _ in range(2)]
    both = [taken(limiter, loop) for loop in loops]
    with proxy.refused():
        for hold, loop in zip(both, loops, strict=True):
            leave(hold, loop)
    loops[1].run_until_complete(asyncio.wait_for(until_free(limiter, newest), 30))
    for loop in loops:
        loop.run_until_complete(limiter.aclose())
        loop.close()


def test_a_hold_that_is_taken_as_its_loop_ends_is_given_back(newest: Server, proxy: Proxy) -> None:
    limiter, loop = allowing(proxy), asyncio.new_event_loop()

    async def cancelled() -> None:
        taking = asyncio.create_task(limiter.hold("k", "slots:2,cost=1", ttl=TTL_S).__aenter__())
        while left(newest, rule="slots:2") == 2:
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait([taking])

    with proxy.delayed(1):
        loop.run_until_complete(cancelled())
    loop.close()
    asyncio.run(asyncio.wait_for(until_free(limiter, newest), 30))


def test_a_hold_that_no_loop_renews_is_lost_and_can_be_left_in_another_loop(newest: Server) -> None:
    limiter, loops = AsyncRateLimiter.from_url(newest.url, timeout=5), [asyncio.new_event_loop() for _ in range(2)]
    both = [limiter.hold(key, "slots:1", ttl=0.3) for key in ("a", "b")]
    for hold in both:
        loops[0].run_until_complete(hold.__aenter__())
    time.sleep(0.4)  # work that does not let the loop run
    assert both[0].lost.is_set()
    loops[0].close()
    for hold in both:
        leave(hold, loops[1])
    assert both[1].lost.is_set(), "also if nobody looked before"
    loops[1].run_until_complete(limiter.aclose())
    loops[1].close()


def test_leases_of_short_loops_count_what_was_used(newest: Server) -> None:
    limiter = AsyncRateLimiter.from_url(newest.url, timeout=5)
    lease = AsyncLease(limiter, "k", "1000/d", ttl=TTL_S)
    for _ in range(5):
        assert asyncio.run(lease.take()).allowed
    assert left(newest, rule="1000/d") == 995 and holds(newest, "k") == 0


def test_the_next_loop_settles_the_lease_of_one_that_was_only_closed(newest: Server) -> None:
    limiter = AsyncRateLimiter.from_url(newest.url, timeout=5)
    lease = AsyncLease(limiter, "k", "1000/d", ttl=TTL_S)
    for _ in range(5):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(lease.take()).allowed
        loop.close()
    assert asyncio.run(lease.take()).allowed
    assert left(newest, rule="1000/d") == 994 and holds(newest, "k") == 0


def test_the_units_of_a_lease_that_lapsed_are_counted_again(newest: Server) -> None:
    limiter, loop = AsyncRateLimiter.from_url(newest.url, timeout=5), asyncio.new_event_loop()
    lease = AsyncLease(limiter, "k", "1000/d", ttl=0.2)
    for _ in range(3):
        assert loop.run_until_complete(lease.take()).allowed
        time.sleep(0.3)  # the loop does not run
    loop.run_until_complete(lease.aclose())
    loop.run_until_complete(limiter.aclose())
    loop.close()
    assert left(newest, rule="1000/d") == 997


def test_an_outage_is_told_once_for_all_loops_and_so_is_its_end(proxy: Proxy) -> None:
    told: list[bool] = []
    limiter = AsyncRateLimiter.from_url(
        proxy.url, timeout=5, outage="allow", on_outage=lambda event: told.append(event.away)
    )
    with proxy.refused():
        for _ in range(2):
            assert asyncio.run(limiter.check("k", "5/m")).source == "outage"
    assert asyncio.run(limiter.check("k", "5/m")).source == "server"
    assert told == [True, False]
