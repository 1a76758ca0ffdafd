"""Holds, waits and costs by name, on every server, with and without asyncio."""

import asyncio
import threading
import time

import pytest
import redis
from servers import Server, until

import limiters
from rl_limits import AsyncRateLimiter, Denied, RateLimiter, Report
from rl_limits._replies import record

RULES = ["slots:1,cost=1", "100/m"]


def left(server: Server, key: str = "k", rule: str = "100/m") -> int:
    with server.client() as client:
        return client.execute_command("RL.PEEK", key, rule)[2]


def holds(server: Server, key: str) -> int:
    with server.client() as client:
        info = client.execute_command("RL.INFO", key)
    return record(info)["holds"] if info else 0


def waiting(server: Server) -> int:
    with server.client() as client:
        return client.info("ratelimit")["ratelimit_waiting_clients"]


def settled(server: Server) -> int:
    with server.client() as client:
        return client.info("ratelimit")["ratelimit_holds_settled"]


def test_a_hold_lasts_as_long_as_its_block(server: Server) -> None:
    limiter = limiters.of(server)
    with limiter.hold("k", RULES, cost=10, ttl=0.6) as hold:
        assert hold.reply.allowed and [rule.cost for rule in hold.reply.rules] == [1, 10]
        with pytest.raises(Denied) as denied, limiter.hold("k", RULES, ttl=30):
            pass
        assert (denied.value.reply.verdict, denied.value.reply.rules[0].denies) == ("limited", True)
        assert 0 < denied.value.reply.wait_ms <= 600
        time.sleep(1)  # it renews itself
        assert not hold.lost.is_set() and left(server, rule="slots:1") == 0
    assert left(server, rule="slots:1") == 1 and left(server) == 90, "the hold's charges stand"


async def test_a_hold_that_limits_nobody_is_not_lost(newest: Server) -> None:
    limiter = limiters.of(newest)
    limiter.call("RL.EXEMPT", "exempt")
    for key, rule in (("exempt", "slots:1"), ("trial", "slots:1,shadow")):
        with limiter.hold(key, rule, ttl=0.3) as hold:
            limiter.settle(key, hold.id)
            assert not hold.lost.wait(0.6), key
        async with limiters.async_of(newest) as other, other.hold(key, rule, ttl=0.3) as async_hold:
            limiter.settle(key, async_hold.id)
            await asyncio.sleep(0.6)  # it is renewed in vain meanwhile
            assert not async_hold.lost.is_set(), key


def test_a_wait_delays_no_other_command_and_has_a_longer_time_out(newest: Server) -> None:
    limiter = RateLimiter(redis.Redis(port=newest.port, socket_timeout=0.5))
    with limiter.hold("k", "slots:1", ttl=30) as first:
        got: list[Report] = []

        def work() -> None:
            with limiter.hold("k", "slots:1", ttl=30, wait=20) as second:
                got.append(second.reply)

        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: waiting(newest) == 1)
        time.sleep(0.7)
        assert limiter.check("other", "5/m").allowed and not got
        first.settle()
        thread.join()
    assert got[0].allowed


def test_an_unblocked_client_waits_again(newest: Server) -> None:
    limiter = limiters.of(newest)
    limiter.check("k", "1/s")

    def send_away() -> None:
        until(lambda: waiting(newest) == 1)
        with newest.client() as client:
            [waiter] = [one["id"] for one in client.client_list() if one["cmd"] == "rl.wait"]
            client.client_unblock(int(waiter), error=True)

    thread = threading.Thread(target=send_away)
    thread.start()
    assert limiter.wait("k", "1/s", 20).allowed
    thread.join()
    with newest.client() as client:
        assert client.info("errorstats")["errorstat_UNBLOCKED"]["count"] == 1


async def test_a_wait_goes_to_the_node_of_its_key(cluster: list[Server]) -> None:
    port = cluster[0].port
    limiter = RateLimiter(redis.RedisCluster(host="127.0.0.1", port=port))
    async with redis.asyncio.RedisCluster(host="127.0.0.1", port=port) as client:
        async_limiter = AsyncRateLimiter(client, timeout=5)
        for n in range(6):
            assert limiter.wait(f"line:{n}", "2/m", 1).allowed
            assert (await async_limiter.wait(f"line:{n}", "2/m", 1)).remaining == 0
            with limiter.hold(f"jobs:{n}", "slots:1", ttl=30, wait=1):
                assert (await async_limiter.peek(f"jobs:{n}", "slots:1")).remaining == 0


async def test_a_hold_under_a_leaky_rule_begins_at_its_turn(newest: Server) -> None:
    limiter, rule = limiters.of(newest), "leaky:2/s"
    async with limiters.async_of(newest) as async_limiter:
        began_s = time.monotonic()
        limiter.check("k", rule)
        with limiter.hold("k", rule, ttl=0.3) as hold:
            assert time.monotonic() - began_s > 0.4 and not hold.lost.is_set(), "it is renewed meanwhile"
        limiter.reset("k")
        began_s = time.monotonic()
        limiter.check("k", rule)
        async with async_limiter.hold("k", rule, ttl=0.3) as async_hold:
            assert time.monotonic() - began_s > 0.4 and not async_hold.lost.is_set()


async def test_a_server_that_hangs_ends_a_wait_long_before_its_deadline(newest: Server) -> None:
    limiter = RateLimiter.from_url(newest.url, outage="deny")
    async_limiter = AsyncRateLimiter.from_url(newest.url, outage="deny")
    until(lambda: limiter.check("k", "1/50s").source == "server")
    began_s = time.monotonic()
    waits = [
        asyncio.create_task(asyncio.to_thread(limiter.wait, "k", "1/50s", 60)),
        asyncio.create_task(async_limiter.wait("k", "1/50s", 60)),
    ]
    await asyncio.sleep(5.5)  # meanwhile each limiter asks the server once
    assert waiting(newest) == 2
    with newest.paused():
        answers = await asyncio.gather(*waits)
    assert [answer.source for answer in answers] == ["outage", "outage"]
    assert time.monotonic() - began_s < 14
    await async_limiter.aclose()


async def test_a_limiter_that_is_closed_waits_for_no_server(newest: Server) -> None:
    limiter = AsyncRateLimiter.from_url(newest.url, outage="allow")
    assert (await limiter.peek("k", "slots:9")).source == "server"
    with newest.paused():
        for _ in range(3):
            async with limiter.hold("k", "slots:9", ttl=600) as hold:
                assert hold.reply.source == "outage"
        began_s = time.monotonic()
        await limiter.aclose()
        assert time.monotonic() < began_s + 10
