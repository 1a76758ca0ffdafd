"""Denials that are remembered: at given times, and on a real server."""

import itertools
import sys
import threading
import time
from typing import Any

import pytest

from rl_limits import Limit, Reply, Rules
from rl_limits._commands import Command
from rl_limits._core import Core
from rl_limits._denials import Denials, lasts
from rl_limits._options import settings
from servers import Server


def denied(wait_ms: int, verdict: Any = "limited") -> Reply:
    return Reply(verdict, 5, 0, wait_ms, 900)


def test_a_denial_holds_until_its_wait_is_over() -> None:
    known = Denials(2)
    known.keep("a", "k", denied(300), 1000)
    assert known.get("a", 1100) == Reply("limited", 5, 0, 200, 800, None, "denial")
    assert known.get("a", 1100.9) is known.get("a", 1100) and known.get("a", 1101).wait_ms == 199
    assert known.get("a", 1299.9) and not known.get("a", 1300) and not known.get("b", 1000)


@pytest.mark.parametrize("answer", [denied(-1), denied(-1, "blocked"), denied(90_000, "blocked")])
def test_blocks_and_endless_denials_are_remembered_for_a_second(answer: Reply) -> None:
    known = Denials(2)
    known.keep("a", "k", answer, 0)
    late = known.get("a", 999)
    assert isinstance(late, Reply) and late.reset_ms == 0, "below 0 would mean never"
    assert not known.get("a", 1000)


def test_a_new_denial_evicts_the_oldest_and_a_key_can_be_forgotten() -> None:
    known = Denials(2)
    for what, key in (("a", "k"), ("b", "k"), ("c", "m")):
        known.keep(what, key, denied(300), 0)
    assert [bool(known.get(what, 1)) for what in "abc"] == [False, True, True]
    known.forget("k")
    assert [bool(known.get(what, 1)) for what in "abc"] == [False, False, True]


def test_threads_share_the_denials() -> None:
    known, failed = Denials(2), list[Exception]()

    def work(n: int) -> None:
        try:
            for what in itertools.islice(itertools.cycle("abcde"), n, n + 3000):
                known.keep(what, "k", denied(300), 0)
                known.get(what, 400)
                known.forget("k")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert not failed and not known._entries and not known._of_key


@pytest.mark.parametrize(
    "rules, lasting",
    [
        ("5/m", True),
        (("5/m", "bucket:1/s"), True),
        (("5/m", "slots:3"), False),
        ("5/m,count=all", False),
        ("5/m,ban=1m", False),
        ("@free", False),
        ("@plan:free", False),
    ],
)
def test_only_denials_by_rates_last(rules: str | tuple[str, ...], lasting: bool) -> None:
    assert lasts(rules) == lasting


def denials_of(server: Server) -> int:
    with server.client() as client:
        return int(client.info("commandstats").get("cmdstat_rl.check", {}).get("calls", 0))


def test_a_denied_client_costs_the_server_nothing(server: Server) -> None:
    limiter = server.limiter(remember_denials=100)
    rules: Rules = ["1/h", "9/d"]
    limiter.check("a", rules)
    first, asked = limiter.check("a", rules), denials_of(server)
    again = limiter.check("a", tuple(rules))
    assert (first.source, again.source, again.verdict) == ("server", "denial", "limited")
    assert first.wait_ms - 2000 < again.wait_ms <= first.wait_ms
    assert denials_of(server) == asked
    assert limiter.check("a", rules, cost=2).source == "server", "a denial of another cost is not remembered"
    assert limiter.refund("a", 1) == 1
    assert limiter.check("a", rules).allowed, "the units given back are free at once"
    with limiter.hold("b", rules, ttl=30) as hold:
        assert [limiter.check("b", rules).source for _ in range(2)] == ["server", "denial"]
        hold.refund()
        assert limiter.check("b", rules).allowed, "so are those that a hold gives back"


@pytest.mark.parametrize(
    "free",
    [
        lambda core: core.settle("k", "id", None, True),
        lambda core: core.settle("k", "id", 1, False),
        lambda core: core.refund("k", 1, ()),
        lambda core: core.reset("k"),
        lambda core: core.resume("k"),
        lambda core: core.plan("k", "pro", None),
        lambda core: core.unplan("k"),
    ],
)
def test_a_denial_that_is_decided_before_units_come_back_is_forgotten(free: Any) -> None:
    core = Core(settings({"remember_denials": 10}))
    freeing, check = free(core), core.check("k", "1/h", 1, None)
    next(freeing)
    next(check)
    with pytest.raises(StopIteration):
        check.send([1, 1, 0, 900_000, 900_000])
    assert core.remembered("k", "1/h", 1)
    with pytest.raises(StopIteration):
        freeing.send(1)
    assert not core.remembered("k", "1/h", 1)


def test_the_wait_of_a_denial_begins_when_it_was_asked_for() -> None:
    rule = {"rule": "1/h", "name": None, "cost": 1, "verdict": 1, "shadow": 0, "limit": 1, "quota": 1}
    times = {"period_ms": 50, "remaining": 0, "wait_ms": 50, "next_ms": 50, "reset_ms": 50}
    core = Core(settings({"remember_denials": 10}))
    for check, reply in (
        (lambda: core.check("k", "1/h", 1, None), [1, 1, 0, 50, 50]),
        (lambda: core.check_all([Limit("k", "1/h")], 1, None), {"verdict": 1, "wait_ms": 50, "rules": [rule | times]}),
    ):
        asking: Any = check()
        next(asking)
        time.sleep(0.06)  # the reply is late
        with pytest.raises(StopIteration):
            asking.send(reply)
    assert not core.remembered("k", "1/h", 1)
    assert isinstance(next(core.check_all([Limit("k", "1/h")], 1, None)), Command), "the server is asked again"


def test_reports_under_a_policy_are_remembered_if_its_rules_are_rates(newest: Server) -> None:
    limiter = newest.limiter(remember_denials=100)
    with newest.client() as redis:
        redis.execute_command("RL.POLICY", "SET", "rate", "1/h")
        redis.execute_command("RL.POLICY", "SET", "strict", "1/h,count=all")
    for policy, source in (("@rate", "denial"), ("@strict", "server")):
        limits = [Limit(f"{policy}:ip", policy), Limit(f"{policy}:user", "9/m")]
        assert limiter.check_all(limits).allowed
        assert [limiter.check_all(limits).source for _ in range(2)] == ["server", source]
    for _ in range(3):
        assert limiter.check("@rate:ip", "@rate").source == "server", "five integers do not show the policy's rules"


async def test_denials_are_remembered_with_asyncio(newest: Server) -> None:
    async with newest.async_limiter(remember_denials=100) as limiter:
        answers = [await limiter.check("a", "1/h") for _ in range(3)]
    assert [answer.source for answer in answers] == ["server", "server", "denial"]


def test_the_server_is_asked_again_when_a_wait_is_over(newest: Server) -> None:
    limiter = newest.limiter(remember_denials=100)
    limiter.check("a", "1/100ms")
    denial = limiter.check("a", "1/100ms")
    time.sleep(denial.wait_ms / 1000)
    assert limiter.check("a", "1/100ms").allowed
