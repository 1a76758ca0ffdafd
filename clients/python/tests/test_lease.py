"""Leases: a book at given times, and leases of real servers."""

import asyncio
import time
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from rl_limits import AsyncLease, AsyncRateLimiter, Lease, RateLimiter, Reply, Report, RuleReport, Verdict
from rl_limits._replies import record
from rl_limits.lease import Book
from servers import Server, until
from test_holds import settled

RULE = "bucket:1000/s,burst=150"


def rule(*, remaining: int = 0, wait_ms: int = 0, reset_ms: int = 100) -> RuleReport:
    denies = wait_ms > 0
    return RuleReport(RULE, None, 1, denies, False, 150, 1000, 1000, remaining, wait_ms, wait_ms, reset_ms, "k")


def granted(units: int) -> Report:
    return Report("allowed", 0, (rule(remaining=150 - units),), "k", units)


def test_units_are_handed_out_until_they_are_used_up_or_half_the_time_is_over() -> None:
    book = Book(2, 100)
    assert book.hand_out(1, 0) is None
    book.open("a", 1, granted(4), 0)
    assert [bool(book.hand_out(1, 0.5)) for _ in range(4)] == [True, True, True, False]
    assert book.close(0.5) == ("a", 4) and book.close(0.5) is None
    book.open("b", 1, granted(4), 1)
    assert book.hand_out(1, 1.9) == Reply("allowed", 150, 2, 0, 100)
    assert not book.is_due(1.9) and book.is_due(2)
    assert book.hand_out(1, 2) is None, "the lease must be settled before its hold ends"
    assert book.close(2) == ("b", 2)


def test_a_block_is_remembered_for_a_second_and_a_denial_until_it_is_over() -> None:
    by_a_rule = (rule(wait_ms=60_000),)
    cases: list[tuple[Verdict, tuple[RuleReport, ...], int]] = [
        ("blocked", (), 1),
        ("limited", (), 1),
        ("limited", by_a_rule, 60),
    ]
    for verdict, rules, forgotten_s in cases:
        book = Book(2, 100)
        book.open("a", 1, Report(verdict, 60_000, rules), 0)
        assert book.hand_out(1, forgotten_s - 0.1) and not book.hand_out(1, forgotten_s), verdict


@pytest.mark.parametrize(
    "units, used, lasted_s, then",
    [(8, 8, 0.01, 16), (8, 8, 0.1, 8), (8, 8, 0.3, 4), (8, 3, 0.01, 4), (1, 1, 0.3, 1), (80, 80, 0.01, 100)],
)
def test_the_size_adapts(units: int, used: int, lasted_s: float, then: int) -> None:
    book = Book(2, 100)
    book.next_units = units
    book.open("a", used, granted(units), 0)
    book.close(lasted_s)
    assert book.next_units == then


def test_a_denial_holds_until_its_wait_is_over() -> None:
    book = Book(2, 100)
    book.open("a", 5, Report("limited", 300, (rule(wait_ms=300, reset_ms=900),), "k", 0), 0)
    assert book.hand_out(5, 0.1) == Reply("limited", 150, 0, 200, 800, 0, "denial")
    assert book.hand_out(4, 0.1) is None, "a lower cost may pass"
    assert book.hand_out(5, 0.3) is None


def left(server: Server) -> int:
    with server.client() as client:
        return client.execute_command("RL.PEEK", "k", "100/h")[2]


def test_unused_units_of_a_lease_come_back(server: Server) -> None:
    with Lease(server.limiter(), "k", "100/h") as lease:
        assert sum(lease.take().allowed for _ in range(20)) == 20
        assert left(server) <= 80
    assert left(server) == 80
    with Lease(server.limiter(), "k", "100/h") as lease:
        assert sum(lease.take().allowed for _ in range(200)) == 80
        assert lease.take().source == "denial" and lease.take().wait_ms > 3_000_000
    assert left(server) == 0


def test_units_under_shadow_rules_are_leased_and_settled(server: Server) -> None:
    limiter, rules = server.limiter(), "bucket:100/d,shadow"
    with server.client() as client:
        client.config_resetstat()
        with Lease(limiter, "k", rules, ttl=600, most=50) as lease:
            assert all(lease.take().allowed for _ in range(20))
            assert client.info("commandstats")["cmdstat_rl.check"]["calls"] < 20, "the lease takes units ahead"
    assert limiter.peek_all("k", rules).rules[0].remaining == 80
    assert record(limiter.call("RL.INFO", "k"))["holds"] == 0


async def test_an_exempt_key_has_no_lease(server: Server) -> None:
    limiter = server.limiter()
    limiter.call("RL.EXEMPT", "k")
    async with server.async_limiter() as asynchronous:
        lease, async_lease = Lease(limiter, "k", "0/s"), AsyncLease(asynchronous, "k", "0/s")
        for _ in range(4):
            assert lease.take().allowed and (await async_lease.take()).allowed
        limiter.call("RL.UNEXEMPT", "k")
        assert not lease.take().allowed and not (await async_lease.take()).allowed, "no lease took anything ahead"
        await async_lease.aclose()
        lease.close()


def test_a_lease_without_rules_passes(stopped: Server) -> None:
    with Lease(RateLimiter.from_url(stopped.url), "k", []) as lease:
        assert lease.take().allowed and lease.take().source == "local"


async def test_leases_with_asyncio(server: Server) -> None:
    async with server.async_limiter() as limiter, AsyncLease(limiter, "k", "100/h") as lease:
        answers = await asyncio.gather(*(lease.take() for _ in range(200)))
        assert sum(answer.allowed for answer in answers) == 100
    assert left(server) == 0
    with server.client() as client:
        calls = client.info("commandstats")["cmdstat_rl.check"]["calls"]
    # How fast a lease grows depends on how fast the server answers.
    assert calls < len(answers), "a lease serves many requests"


async def test_an_idle_lease_is_settled_before_it_ends(newest: Server) -> None:
    lease = Lease(newest.limiter(), "k", "100/h", ttl=0.6)
    async with newest.async_limiter() as limiter:
        async_lease = AsyncLease(limiter, "k", "100/h", ttl=0.6)
        for _ in range(5):
            assert lease.take().allowed and (await async_lease.take()).allowed
        await asyncio.sleep(0.8)
        assert left(newest) == 90, "what was used stays counted, though the holds would have given it back"
        await async_lease.aclose()
    lease.close()


async def test_a_refused_settlement_fails_no_take(newest: Server) -> None:
    with newest.client() as client:
        client.execute_command("ACL", "SETUSER", "clerk", "on", ">secret", "~*", "+@all", "-rl.settle")
    clerk: Any = {"username": "clerk", "password": "secret"}
    lease = Lease(newest.limiter(**clerk), "k", "100/h", most=1, ttl=0.6)
    async with newest.async_limiter(**clerk) as limiter:
        async_lease = AsyncLease(limiter, "k", "100/h", most=1, ttl=0.6)
        for _ in range(4):
            assert lease.take().allowed and (await async_lease.take()).allowed
        await asyncio.sleep(0.5)
        assert lease._settler and lease._settler.is_alive() and async_lease._settler and not async_lease._settler.done()
        assert lease.take().allowed and (await async_lease.take()).allowed
        with pytest.raises(NoPermissionError):
            lease.close()
        with pytest.raises(NoPermissionError):
            await async_lease.aclose()


def test_several_leases_keep_to_one_limit(newest: Server) -> None:
    began = time.monotonic()
    leases = [Lease(newest.limiter(), "k", RULE) for _ in range(4)]
    passed = 0
    while time.monotonic() < began + 1:
        passed += sum(lease.take().allowed for lease in leases)
    lasted_s = time.monotonic() - began
    for lease in leases:
        lease.close()
    assert 0.3 * 1000 * lasted_s < passed <= 150 + 1000 * lasted_s  # a busy machine asks less often


def test_without_the_server_the_limiter_answers_as_chosen(stopped: Server) -> None:
    with Lease(RateLimiter.from_url(stopped.url, outage="local"), "k", "2/m") as lease:
        answers = [lease.take() for _ in range(3)]
    assert [answer.allowed for answer in answers] == [True, True, False]
    assert {answer.source for answer in answers} == {"local"}


async def test_a_lease_whose_reply_comes_too_late_is_given_back(newest: Server) -> None:
    limiter = RateLimiter.from_url(newest.url, outage="allow")
    async with AsyncRateLimiter.from_url(newest.url, outage="allow") as asynchronous:
        assert limiter.peek("k", "100/h").source == (await asynchronous.peek("k", "100/h")).source == "server"
        before = settled(newest)
        lease, async_lease = Lease(limiter, "k", "100/h", ttl=600), AsyncLease(asynchronous, "k", "100/h", ttl=600)
        with newest.paused():
            answers = await asyncio.gather(asyncio.to_thread(lease.take, 30), async_lease.take(30))
            assert [answer.source for answer in answers] == ["outage"] * 2
        await asyncio.to_thread(until, lambda: settled(newest) == before + 2)
        assert left(newest) == 100
        await async_lease.aclose()
        lease.close()
