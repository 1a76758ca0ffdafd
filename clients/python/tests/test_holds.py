"""Holds, waits and costs by name, on every server, with and without asyncio."""

import asyncio
import threading
import time
from typing import Any

import pytest
import redis

from rl_limits import AsyncRateLimiter, Denied, RateLimiter, Report
from rl_limits._replies import record
from servers import Server, until

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
    limiter = server.limiter()
    with limiter.hold("k", RULES, cost=10, ttl=0.6) as hold:
        assert hold.reply.allowed and [rule.cost for rule in hold.reply.rules] == [1, 10]
        with pytest.raises(Denied) as denied, limiter.hold("k", RULES, ttl=30):
            pass
        assert (denied.value.reply.verdict, denied.value.reply.rules[0].denies) == ("limited", True)
        assert 0 < denied.value.reply.wait_ms <= 600
        time.sleep(1)  # it renews itself
        assert not hold.lost.is_set() and left(server, rule="slots:1") == 0
    assert left(server, rule="slots:1") == 1 and left(server) == 90, "the hold's charges stand"


def test_the_cost_of_a_hold_is_corrected_or_given_back(server: Server) -> None:
    limiter = server.limiter()
    with limiter.hold("k", RULES, cost=40, ttl=30, id="req-1") as hold:
        assert hold.id == "req-1" and hold.settle(cost=1)
        assert left(server) == 99 and not hold.settle(cost=5), "only once"
    with limiter.hold("k", RULES, cost=40, ttl=30) as hold:
        assert hold.refund()
    assert left(server) == 99
    with pytest.raises(ZeroDivisionError), limiter.hold("k", RULES, cost=9, ttl=30, refund=True):
        raise ZeroDivisionError
    assert left(server) == 90 and left(server, rule="slots:1") == 1, "an error settles too"


def test_a_lost_hold_is_reported(newest: Server) -> None:
    limiter = newest.limiter()
    with limiter.hold("k", "slots:1", ttl=0.3) as hold:
        limiter.settle("k", hold.id)
        assert hold.lost.wait(5)
    limiter = RateLimiter.from_url(newest.url)
    with limiter.hold("k", "slots:1", ttl=0.9) as hold, newest.paused():
        assert not hold.lost.wait(0.5)
        assert hold.lost.wait(5), "nobody could renew it"


async def test_a_hold_that_limits_nobody_is_not_lost(newest: Server) -> None:
    limiter = newest.limiter()
    limiter.call("RL.EXEMPT", "exempt")
    for key, rule in (("exempt", "slots:1"), ("trial", "slots:1,shadow")):
        with limiter.hold(key, rule, ttl=0.3) as hold:
            limiter.settle(key, hold.id)
            assert not hold.lost.wait(0.6), key
        async with newest.async_limiter() as other, other.hold(key, rule, ttl=0.3) as async_hold:
            limiter.settle(key, async_hold.id)
            await asyncio.sleep(0.6)  # it is renewed in vain meanwhile
            assert not async_hold.lost.is_set(), key


def test_settle_and_renew_by_hand(server: Server) -> None:
    limiter = server.limiter()
    limiter.call("RL.CHECK", "k", "COST", 40, "HOLD", "a", "EX", 30, "100/m")
    assert limiter.renew("k", "a", 60) and not limiter.renew("k", "b", 60)
    assert limiter.settle("k", "a", cost=1) and not limiter.settle("k", "a")
    assert left(server) == 99


def test_costs_have_names(server: Server) -> None:
    limiter = server.limiter()
    rules = ["50/m,cost=1", "bucket:40000/d,name=in", "bucket:8000/d,name=out", "fixed:9/d"]
    with limiter.hold("k", rules, cost={"in": 3000, "out": 1000, "": 2}, ttl=30) as hold:
        assert [rule.cost for rule in hold.reply.rules] == [1, 3000, 1000, 2]
        hold.settle(cost={"out": 250})
    assert [left(server, rule=rule) for rule in rules[1:]] == [37000, 7750, 7]
    assert limiter.check("k", rules, cost={"in": 37_001}).verdict == "limited"


def test_a_caller_in_line_gets_its_turn(server: Server) -> None:
    limiter = server.limiter()
    assert limiter.wait("k", "1/300ms", 1).allowed
    began = time.monotonic()
    assert limiter.wait("k", "1/300ms", 0.05).verdict == "limited", "it cannot pass in time"
    assert limiter.wait("k", "1/300ms", 5).allowed
    assert 0.2 < time.monotonic() - began < 4


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
    limiter = newest.limiter()
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


async def test_holds_with_asyncio(server: Server) -> None:
    async with server.async_limiter() as limiter:
        async with limiter.hold("k", RULES, cost=10, ttl=0.6) as hold:
            with pytest.raises(Denied):
                async with limiter.hold("k", RULES, ttl=30):
                    pass
            await asyncio.sleep(1)
            assert not hold.lost.is_set() and left(server, rule="slots:1") == 0
            assert await hold.settle(cost=1)
        assert left(server) == 99 and left(server, rule="slots:1") == 1
        async with limiter.hold("k", "slots:1", ttl=0.3) as hold:
            await limiter.settle("k", hold.id)
            async with asyncio.timeout(5):
                await hold.lost.wait()
        async with limiter.hold("k", RULES, cost=40, ttl=30) as hold:
            assert await hold.refund()
        assert left(server) == 99


async def test_a_cancelled_task_leaves_the_line(server: Server) -> None:
    async with server.async_limiter() as limiter:
        await limiter.check("k", "1/h")
        task = asyncio.create_task(limiter.wait("k", "1/h", 3600))
        other = asyncio.create_task(limiter.wait("k2", "1/300ms", 5))
        assert (await other).allowed, "each wait has its own connection"
        await asyncio.to_thread(until, lambda: waiting(server) == 1)
        task.cancel()
        await asyncio.to_thread(until, lambda: waiting(server) == 0)
        async with limiter.hold("k3", "slots:1", ttl=30) as first:
            again = asyncio.create_task(limiter.hold("k3", "slots:1", ttl=30, wait=20).__aenter__())
            await asyncio.to_thread(until, lambda: waiting(server) == 1)
            await first.settle()
            await (await again).settle()


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


async def test_holds_without_the_server(stopped: Server) -> None:
    local = RateLimiter.from_url(stopped.url, outage="local")
    with local.hold("k", "slots:1", ttl=0.3) as hold:
        with pytest.raises(Denied), local.hold("k", "slots:1", ttl=30):
            pass
        time.sleep(0.5)
        assert not hold.lost.is_set(), "this process renews it"
    with local.hold("k", "slots:1", ttl=30):
        pass
    with pytest.raises(Denied), RateLimiter.from_url(stopped.url, outage="deny").hold("k", "slots:1", ttl=30):
        pass
    with RateLimiter.from_url(stopped.url, outage="allow").hold("k", "slots:1", ttl=30, wait=1) as hold:
        assert hold.reply.source == "outage"
    with pytest.raises(redis.ConnectionError), RateLimiter.from_url(stopped.url).hold("k", "slots:1", ttl=30):
        pass


async def test_a_hold_under_a_leaky_rule_begins_at_its_turn(newest: Server) -> None:
    limiter, rule = newest.limiter(), "leaky:2/s"
    async with newest.async_limiter() as async_limiter:
        began_s = time.monotonic()
        limiter.check("k", rule)
        with limiter.hold("k", rule, ttl=0.3) as hold:
            assert time.monotonic() - began_s > 0.4 and not hold.lost.is_set(), "it is renewed meanwhile"
        limiter.reset("k")
        began_s = time.monotonic()
        limiter.check("k", rule)
        async with async_limiter.hold("k", rule, ttl=0.3) as async_hold:
            assert time.monotonic() - began_s > 0.4 and not async_hold.lost.is_set()


async def test_settling_raises_an_outage(newest: Server) -> None:
    limiter, async_limiter = RateLimiter.from_url(newest.url), AsyncRateLimiter.from_url(newest.url)
    with pytest.raises(redis.TimeoutError), limiter.hold("k", "slots:9", ttl=600) as hold, newest.paused():
        hold.settle(cost=1)
    with pytest.raises(redis.TimeoutError), limiter.hold("k", "slots:9", ttl=600) as hold, newest.paused():
        hold.refund()
    for end in ("settle", "refund"):
        with pytest.raises((redis.TimeoutError, TimeoutError)):
            async with async_limiter.hold("k", "slots:9", ttl=600) as async_hold:
                with newest.paused():
                    await getattr(async_hold, end)()
    await async_limiter.aclose()


def test_leaving_a_block_raises_nothing_while_the_server_is_away(newest: Server) -> None:
    limiter = RateLimiter.from_url(newest.url)
    with newest.client() as client:
        client.ping()
    hold = limiter.hold("k", "slots:1", ttl=1)
    hold.__enter__()
    with newest.paused():
        hold.__exit__(None, None, None)
    with limiter.hold("k", "slots:1", ttl=1, wait=5):
        pass  # it has lapsed


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
    assert 12 < time.monotonic() - began_s < 16
    await async_limiter.client.aclose()


async def test_a_wait_connects_within_the_time_out(newest: Server) -> None:
    limiter = RateLimiter.from_url(newest.url, outage="deny")
    async_limiter = AsyncRateLimiter.from_url(newest.url, outage="deny")
    with newest.paused():
        began_s = time.monotonic()
        async with asyncio.timeout(10):
            waits = asyncio.to_thread(limiter.wait, "k", "1/s", 12), async_limiter.wait("k", "1/s", 12)
            answers = await asyncio.gather(*waits)
        assert [answer.source for answer in answers] == ["outage", "outage"]
        assert time.monotonic() - began_s < 2
    await async_limiter.aclose()


@pytest.mark.parametrize("outage", ["raise", "allow", "deny", "local"])
async def test_a_hold_that_had_no_reply_is_given_back(newest: Server, outage: Any) -> None:
    """The server takes the hold late: by then the block has ended, with an answer that the server did not give."""
    limiter = RateLimiter.from_url(newest.url, outage=outage)
    async_limiter = AsyncRateLimiter.from_url(newest.url, outage=outage)

    def block() -> None:
        with limiter.hold("k", "slots:2", ttl=600) as hold:
            assert not hold.lost.is_set()

    async def async_block() -> None:
        async with async_limiter.hold("k", "slots:2", ttl=600) as hold:
            assert not hold.lost.is_set()

    assert limiter.peek("k", "slots:2").source == (await async_limiter.peek("k", "slots:2")).source == "server"
    before = settled(newest)
    seen = {"raise": (redis.TimeoutError, TimeoutError), "deny": (Denied,)}.get(outage, (type(None),))
    with newest.paused():
        ended = await asyncio.gather(asyncio.to_thread(block), async_block(), return_exceptions=True)
    assert [isinstance(end, seen) for end in ended] == [True] * 2
    await asyncio.to_thread(until, lambda: settled(newest) == before + 2)
    assert left(newest, rule="slots:2") == 2
    await async_limiter.aclose()


@pytest.mark.parametrize("outage", ["raise", "local"])
async def test_holds_without_a_reply_are_given_back_when_the_server_is_back(newest: Server, outage: Any) -> None:
    """By then the limiter has stopped asking, so its settlements wait for the server."""
    limiter = RateLimiter.from_url(newest.url, outage=outage, timeout=1)
    async_limiter = AsyncRateLimiter.from_url(newest.url, outage=outage, timeout=1)

    def block() -> None:
        with limiter.hold("k", "slots:9", ttl=600):
            pass

    async def async_block() -> None:
        async with async_limiter.hold("k", "slots:9", ttl=600):
            pass

    connecting = [asyncio.to_thread(limiter.call, "BLPOP", "none", "0.1") for _ in range(4)]
    await asyncio.gather(*connecting, *(async_limiter.call("BLPOP", "none", "0.1") for _ in range(4)))
    before = settled(newest)
    with newest.paused():
        blocks = [work for _ in range(4) for work in (asyncio.to_thread(block), async_block())]
        await asyncio.gather(*blocks, return_exceptions=True)
        assert limiter.away and async_limiter.away
        await asyncio.sleep(2)  # the first attempts to settle fail; a longer pause does no harm
    await asyncio.to_thread(until, lambda: settled(newest) == before + 8)
    assert left(newest, rule="slots:9") == 9
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
