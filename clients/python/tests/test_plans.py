"""Policies that are bound to keys."""

import time

import pytest

from rl_limits import AsyncRateLimiter, Lease, Limit, RateLimiter, is_outage
from rl_limits._replies import record
from servers import Server

FREE = "@plan:free"


@pytest.fixture
def selling(server: Server) -> Server:
    with server.client() as redis:
        for policy in ("free 1/h", "pro 5/h"):
            redis.execute_command("RL.POLICY", "SET", *policy.split())
    return server


async def test_a_plan_stands_until_its_end_or_until_it_is_forgotten(selling: Server) -> None:
    limiter = selling.limiter()
    assert [limiter.check("a", FREE).limit, limiter.check("a", FREE).allowed] == [1, False]
    limiter.plan("a", "pro")
    assert limiter.check("a", FREE).remaining == 3, "counts stay"
    assert [limiter.unplan("a"), limiter.unplan("a")] == [True, False]
    limiter.plan("a", "pro", 0.3)
    assert limiter.peek("a", FREE).limit == 5
    time.sleep(0.3)
    assert limiter.peek("a", FREE).limit == 1
    async with selling.async_limiter() as asynchronous:
        await asynchronous.plan("b", "pro", 60)
        assert 59_000 < record(limiter.call("RL.INFO", "b"))["plan_ttl_ms"] <= 60_000
        assert await asynchronous.unplan("b") and not await asynchronous.unplan("b")


def test_a_denied_customer_who_buys_passes_within_a_second(selling: Server) -> None:
    limiter, seller = selling.limiter(remember_denials=10), selling.limiter()
    limits = [Limit("a", FREE)]
    assert [limiter.check_all(limits).source for _ in range(3)] == ["server", "server", "denial"]
    limiter.plan("a", "pro")
    assert limiter.check_all(limits).allowed, "the limiter that sold the plan asks at once"
    limiter.unplan("a")
    assert [limiter.check_all(limits).source for _ in range(2)] == ["server", "denial"]
    seller.plan("a", "pro")
    time.sleep(1)
    assert limiter.check_all(limits).allowed


def test_a_denied_lease_asks_the_server_again_within_a_second(selling: Server) -> None:
    with Lease(selling.limiter(), "a", FREE) as lease:
        assert [lease.take().source for _ in range(3)] == ["server", "server", "denial"]
        selling.limiter().plan("a", "pro")
        time.sleep(1)
        assert lease.take().allowed


async def test_without_the_server_the_default_decides(stopped: Server) -> None:
    policies = {"free": "1/h", "pro": "5/h"}
    local = RateLimiter.from_url(stopped.url, outage="local", policies=policies)
    asynchronous = AsyncRateLimiter.from_url(stopped.url, outage="local", policies=policies)
    for send in (lambda: local.plan("k", "pro"), lambda: local.unplan("k")):
        with pytest.raises(Exception) as raised:
            send()
        assert is_outage(raised.value)
    for send in (asynchronous.plan("k", "pro"), asynchronous.unplan("k")):
        with pytest.raises(Exception) as raised:
            await send
        assert is_outage(raised.value)
    assert [local.check("k", FREE).allowed for _ in range(2)] == [True, False]
