"""The commands, on every server, with RESP2 and RESP3, and in a cluster."""

import threading
from contextlib import nullcontext
from typing import Any

import pytest
from redis import Redis, RedisCluster, RedisError
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import Server, until

import limiters
from rl_limits import AsyncRateLimiter, Limit, RateLimiter, Reply
from rl_limits._commands import Command
from rl_limits._links import Node

KINDS = [(2, False), (2, True), (3, False), (3, True)]


@pytest.mark.parametrize("protocol, decode", KINDS)
def test_a_check_consumes_until_a_rule_denies(server: Server, protocol: int, decode: bool) -> None:
    limiter = RateLimiter(Redis(port=server.port, protocol=protocol, decode_responses=decode))
    assert limiter.check("login:42", ["2/15m", "20/d"]) == Reply("allowed", 2, 1, 0, 900_000)
    assert limiter.peek("login:42", "2/15m", cost=2).verdict == "limited"
    assert limiter.check("login:42", ["2/15m", "20/d"]).allowed
    denied = limiter.check("login:42", ["2/15m", "20/d"], meta="who")
    assert not denied.allowed and 0 < denied.wait_ms <= 900_000
    assert len(limiter.call("RL.LOG", "login:42", "COUNT", 5)) == 1

    assert limiter.refund("login:42", 1, "2/15m") == 1
    assert limiter.peek("login:42", "2/15m").remaining == 1
    assert limiter.reset("login:42") and not limiter.reset("login:42")
    assert limiter.check("batch:7", "bucket:60/m", cost=(1, 100)).granted == 60


@pytest.mark.parametrize("protocol, decode", KINDS)
def test_a_report_tells_of_each_rule(server: Server, protocol: int, decode: bool) -> None:
    limiter = RateLimiter(Redis(port=server.port, protocol=protocol, decode_responses=decode))
    report = limiter.check_all([Limit("t:ip", ["10/s,name=burst"]), Limit("t:user", ["1/m", "100/d,shadow"])])
    assert report.allowed
    assert [(rule.key, rule.name, rule.rule, rule.remaining, rule.shadow) for rule in report.rules] == [
        ("t:ip", "burst", "log:10/1s,name=burst", 9, False),
        ("t:user", None, "log:1/1m", 0, False),
        ("t:user", None, "log:100/1d,shadow", 99, True),
    ]
    report = limiter.check_all([Limit("t:ip", "10/s,name=burst"), Limit("t:user", "1/m")])
    assert (report.verdict, report.key, [rule.denies for rule in report.rules]) == ("limited", "t:user", [False, True])
    assert limiter.peek_all("t:ip", "10/s,name=burst").rules[0].remaining == 9, "the denial took nothing"
    limiter.call("RL.BLOCK", "t:ip", "EX", 100)
    blocked = limiter.check_all([Limit("t:ip", "10/s")])
    assert (blocked.verdict, blocked.rules) == ("blocked", ())


def test_a_check_goes_to_the_node_of_its_key(cluster: list[Server]) -> None:
    limiter = RateLimiter(RedisCluster(host="127.0.0.1", port=cluster[0].port))
    for i in range(30):
        assert limiter.check(f"user:{i}", "2/m").remaining == 1
        assert limiter.check_all([Limit(f"{{{i}}}:a", "2/m"), Limit(f"{{{i}}}:b", "3/m")]).allowed
    found = [node.client().dbsize() for node in cluster]
    assert sum(found) == 90 and all(found)


async def test_a_cluster_is_asked_with_asyncio(cluster: list[Server]) -> None:
    async with AsyncRedisCluster(host="127.0.0.1", port=cluster[0].port) as client:
        limiter = AsyncRateLimiter(client, timeout=5)
        for i in range(30):
            assert (await limiter.check(f"someone:{i}", "2/m")).remaining == 1
            assert (await limiter.check_all([Limit(f"{{{i}}}:c", "2/m"), Limit(f"{{{i}}}:d", "3/m")])).allowed


def test_errors_are_those_of_redis_py(newest: Server, stopped: Server) -> None:
    with pytest.raises(RedisError, match="5/x"):
        RateLimiter(Redis(port=newest.port)).check("a", "5/x")
    with pytest.raises(RedisError):
        RateLimiter(Redis(port=stopped.port, retry=Retry(NoBackoff(), 0))).check("a", "5/m")


LIMITS = [Limit("ip:203.0.113.9", "5/m"), Limit("user:42", "2/m")]


def test_keys_in_different_slots_are_no_outage(cluster: list[Server]) -> None:
    for client in (RedisCluster(host="127.0.0.1", port=cluster[0].port), Redis(port=cluster[0].port)):
        limiter = RateLimiter(client, outage="allow")
        for _ in range(4):
            with pytest.raises(Exception, match="slot"):
                limiter.check_all(LIMITS)
        assert not limiter.away


def outage_amid_keys(server: Server, outage: Any, **options: Any) -> None:
    """The server decides the first of two keys, and is then silent until the check has its answer."""
    limiter, other = limiters.of(server, outage=outage, **options), limiters.of(server, **options)
    limiter.peek("a", "5/m")
    send, silent, answered = limiter._room.exchange, threading.Event(), threading.Event()

    def hang(node: Node, command: Command, *more: bool) -> Any:
        if any(word in ("b", "b:script") for word in command.words):
            silent.set()
            raise TimeoutError
        if silent.is_set():
            assert answered.wait(5), "the answer does not wait for a refund"
        return send(node, command, *more)

    limiter._room.exchange = hang
    with pytest.raises(TimeoutError) if outage == "raise" else nullcontext():
        report = limiter.check_all([Limit("a", "5/m"), Limit("b", "5/m")])
        assert report.source == ("local" if outage == "local" else "outage")
        assert [rule.key for rule in report.rules] == (["a", "b"] if outage == "local" else [])
    assert limiter.outages == 1 and other.peek("a", "5/m").remaining == 4
    answered.set()
    until(lambda: other.peek("a", "5/m").remaining == 5)


@pytest.mark.parametrize("outage", ["raise", "allow", "deny", "local"])
def test_an_outage_amid_keys_asked_separately_charges_none(newest: Server, outage: Any) -> None:
    outage_amid_keys(newest, outage, separately=True)


def test_a_denial_gives_back_its_own_units(newest: Server) -> None:
    """A refund without a hold would take the newest units, which may belong to the next window."""
    limiter, other = limiters.of(newest, separately=True), limiters.of(newest)
    limiter.call("RL.BLOCK", "user")
    send = limiter._room.exchange
    for rule in ("5/4s", "window:5/4s", "fixed:5/4s"):

        def wait(node: Node, command: Command, *more: bool, rule: str = rule) -> Any:
            """Before the second key is checked, the first key's charge lapses, and another client charges the first
            key."""
            if "user" in command.words:
                until(lambda: other.peek(rule, rule).remaining == 5)
                assert other.check(rule, rule, cost=5).allowed
            return send(node, command, *more)

        limiter._room.exchange = wait
        assert limiter.check_all([Limit(rule, rule), Limit("user", "5/m")]).verdict == "blocked"
        assert other.peek(rule, rule).remaining == 0


@pytest.mark.parametrize("separately", [False, True])
async def test_a_key_that_is_given_twice_is_refused(newest: Server, separately: bool) -> None:
    limits = [Limit("k", "3/m,name=a"), Limit("k", "1/h,name=b"), Limit("z", "100/m")]
    with pytest.raises((RedisError, ValueError), match="given twice, expected each key once"):
        limiters.of(newest, separately=separately).check_all(limits)
    async with limiters.async_of(newest, separately=separately) as limiter:
        with pytest.raises((RedisError, ValueError), match="given twice, expected each key once"):
            await limiter.check_all(limits)


@pytest.mark.parametrize("separately", [False, True])
def test_costs_by_name_are_the_same_for_keys_asked_separately(newest: Server, separately: bool) -> None:
    limiter = limiters.of(newest, separately=separately)
    limiter.call("RL.POLICY", "SET", "plan", "9/h,name=out", "bucket:9/d,name=day")

    def costs(cost: Any, *limits: Limit) -> list[int]:
        return [rule.cost for rule in limiter.check_all(limits, cost=cost).rules]

    both = Limit("a", "9/h,name=in"), Limit("b", ["9/h,name=out", "bucket:9/m,name=inner"])
    assert costs({"in": 5, "out": 2}, *both) == [5, 2, 1]
    assert costs({"in": 3, "": 2}, *both) == [3, 2, 2]
    assert costs({"in": 2, "out": 3, "other": 4}, Limit("c", "9/h,name=in"), Limit("d", "@plan")) == [2, 3, 1]
    assert costs({"out": 3, "": 2}, Limit("c", "9/h,name=in"), Limit("d", "@plan")) == [2, 3, 2]
    with pytest.raises(RedisError, match="COST typo= is for no rule here"):
        costs({"typo": 1, "in": 1}, *both)
    with pytest.raises(RedisError, match="5/x"):
        costs(1, both[0], Limit("b", "5/x"))
    assert limiter.peek("a", "9/h,name=in").remaining == 1, "an error charges no key"


def test_an_option_that_is_unknown_is_named() -> None:
    with pytest.raises(ValueError, match="'alow', expected one of raise, allow, deny, local"):
        RateLimiter(Redis(), outage="alow")
