"""Is the server there? A node that says nothing is away, and what one node does says nothing of another.

Each law has a time-out of a second, and a tolerance of half a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

import servers
from drivers import Driver, Failed, Limiter, settled, sources
from proxy import Proxy

TIMEOUT_S = 1.0
TOLERANCE_S = 0.5


class Answer(NamedTuple):
    asked_s: float
    answered_s: float
    source: str


class Asked:
    """The answers to checks that go on while something happens."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def sources(self, since: float = 0.0) -> set[str]:
        return {answer.source for answer in self.answers if answer.asked_s >= since}

    def first(self, source: str, since: float) -> float:
        return min(answer.answered_s for answer in self.answers if answer.source == source and answer.asked_s >= since)


@contextmanager
def asking(limiter: Limiter, keys: list[str], callers: int = 10, pause_s: float = 0.02) -> Iterator[Asked]:
    """Callers that check one after the other until the block ends."""
    asked, ended = Asked(), threading.Event()

    def ask(n: int) -> None:
        while not ended.wait(pause_s):
            began = time.monotonic()
            try:
                source = limiter.check(keys[n % len(keys)], "100000/s")["source"]
            except Failed as error:
                source = "outage" if error.outage else str(error)
            n += callers
            asked.answers.append(Answer(began, time.monotonic(), source))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@contextmanager
def stalled(server: servers.Server, s: float) -> Iterator[float]:
    """The server has stood still for `s` seconds. Yields when that ended."""
    with server.paused():
        time.sleep(s)
    yield time.monotonic()


def busy(limiter: Limiter, key: str, many: int = 30) -> None:
    """Opens as many connections as the package wants."""
    assert sources([limiter.start("check", key=key, rules=["100000/s"]) for _ in range(many)]) == {"server"}


def test_idle_connections_that_ended_are_no_outage(driver: Driver, proxy: Proxy, key: str) -> None:
    limiter = driver.limiter(proxy.url)
    for _ in range(2):
        busy(limiter, key)
        time.sleep(1.2)
        proxy.end()
        time.sleep(0.05)
        checks = [limiter.start("check", key=key, rules=["100000/s"]) for _ in range(1000)]
        assert sources(checks) == {"server"}
    assert limiter("state") == {"away": False, "outages": 0}
    assert not limiter.events("outage")


def test_a_silent_drop_costs_one_outage_a_connection(driver: Driver, proxy: Proxy, key: str) -> None:
    limiter = driver.limiter(proxy.url, outage="allow")
    busy(limiter, key, 5)
    time.sleep(1.2)
    connections = proxy.drop()
    found = [limiter.check(key, "100000/s")["source"] for _ in range(connections + 10)]
    assert found.count("outage") <= connections
    assert set(found[-5:]) == {"server"}


def test_a_short_stall_is_waited_for(driver: Driver, own_server: servers.Server, key: str) -> None:
    limiter = driver.limiter(own_server.url, outage="allow")
    with asking(limiter, [key]) as asked:
        for _ in range(3):
            with stalled(own_server, TIMEOUT_S / 2):
                time.sleep(0.3)
    assert asked.sources() == {"server"}


def test_a_long_stall_ends_with_the_stall(driver: Driver, own_server: servers.Server, key: str) -> None:
    limiter = driver.limiter(own_server.url, outage="allow")
    with asking(limiter, [key]) as asked:
        time.sleep(0.3)
        with stalled(own_server, TIMEOUT_S * 1.5) as ended:
            time.sleep(TOLERANCE_S + 0.5)
    assert asked.sources(ended + TOLERANCE_S) == {"server"}
    assert "outage" in asked.sources()


def test_a_server_that_is_always_late_is_away(driver: Driver, proxy: Proxy, key: str) -> None:
    limiter = driver.limiter(proxy.url, outage="allow")
    busy(limiter, key)
    with asking(limiter, [key]) as asked:
        with proxy.delayed(TIMEOUT_S + 0.05):
            began = time.monotonic()
            time.sleep(10)
            reached = proxy.count("RL.CHECK", began + TIMEOUT_S + 0.1)
            events = limiter.events("outage")
        time.sleep(TIMEOUT_S * 2 + TOLERANCE_S)
        back = time.monotonic()
        time.sleep(0.3)
    assert [event["away"] for event in events] == [True]
    assert reached <= 20
    assert asked.sources(back) == {"server"}
    assert [event["away"] for event in limiter.events("outage")] == [True, False]


def test_a_late_reply_of_a_node_that_answers_others_is_an_outage_for_itself_alone(
    driver: Driver, proxy: Proxy, key: str
) -> None:
    limiter = driver.limiter(proxy.url, outage="allow")
    with asking(limiter, [key]) as asked:
        time.sleep(0.3)
        if proxy.open < 3:
            pytest.skip("all its checks share a connection")
        proxy.drop(1)
        time.sleep(TIMEOUT_S * 2)
    assert [answer.source for answer in asked.answers].count("outage") <= 1
    assert not limiter.events("outage")


def test_a_restarted_server_decides_at_once(driver: Driver, server: servers.Server, key: str) -> None:
    proxy = Proxy(server.port)
    limiter = driver.limiter(proxy.url, outage="allow")
    busy(limiter, key)
    with asking(limiter, [key]) as asked:
        with proxy.refused():
            gone = time.monotonic()
            time.sleep(3)
        back = time.monotonic()
        time.sleep(2)
    proxy.close()
    assert asked.sources(gone + TOLERANCE_S) >= {"outage", "server"}
    assert asked.first("server", back) - back <= 1.1 + TOLERANCE_S
    assert [event["away"] for event in limiter.events("outage")] == [True, False]
    event = limiter.events("outage")[-1]
    assert event["node"].endswith(str(proxy.port))
    assert event["answered"] > 0


@pytest.mark.parametrize("door", ["slammed", "silent"])
def test_a_door_that_opens_and_says_nothing_is_an_outage(driver: Driver, proxy: Proxy, key: str, door: Any) -> None:
    limiter = driver.limiter(proxy.url, outage="allow")
    with proxy.door(door), asking(limiter, [key]) as asked:
        time.sleep(2.5)
    slowest = max(answer.answered_s - answer.asked_s for answer in asked.answers)
    assert asked.sources() == {"outage"}
    assert slowest <= TIMEOUT_S + TOLERANCE_S
    assert len(asked.answers) > 50
    assert proxy.count("RL.CHECK") == 0


def test_a_refused_connection_answers_at_once(driver: Driver, dead: str, key: str) -> None:
    limiter = driver.limiter(dead, outage="allow")
    for _ in range(32):
        began = time.monotonic()
        assert limiter.check(key, "5/s")["source"] == "outage"
        assert time.monotonic() - began < TIMEOUT_S / 2
        time.sleep(0.02)


def test_no_check_takes_longer_than_its_bound(driver: Driver, own_server: servers.Server, key: str) -> None:
    limiter = driver.limiter(own_server.url, outage="allow", concurrency=5, queue_timeout_ms=500)
    busy(limiter, key, 5)
    with own_server.paused():
        began = time.monotonic()
        found = settled([limiter.start("check", key=key, rules=["100000/s"]) for _ in range(100)])
        took = time.monotonic() - began
    assert {one["source"] if isinstance(one, dict) else one.kind for one in found} <= {"outage", "Saturated"}
    assert took <= 0.5 + TIMEOUT_S + TOLERANCE_S


def test_a_hundred_limiters_are_no_storm(driver: Driver, proxy: Proxy, key: str) -> None:
    limiters = [driver.limiter(proxy.url, outage="allow") for _ in range(100)]
    seconds = 5
    with proxy.door("slammed"):
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            settled([one.start("check", key=key, rules=["5/s"]) for one in limiters])
            time.sleep(0.2)
        made = sum(at <= began + seconds for at in proxy.connections)
    assert made <= 100 * 2 * seconds


def test_an_away_node_is_known_to_nobody_after_close(driver: Driver, proxy: Proxy, key: str) -> None:
    limiter = driver.limiter(proxy.url, outage="allow")
    with proxy.door("slammed"):
        assert limiter.check(key, "5/s")["source"] == "outage"
        limiter.close()
        time.sleep(0.3)
        before = len(proxy.connections)
        time.sleep(2)
        assert len(proxy.connections) == before


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_check_whose_reply_is_lost_is_sent_once(driver: Driver, proxy: Proxy, key: str, where: Any) -> None:
    limiter = driver.limiter(proxy.url)
    limiter.check(key, "100/d")
    proxy.cut("RL.CHECK", where)
    before = proxy.count("RL.CHECK")
    with pytest.raises(Failed) as raised:
        limiter.check(key, "100/d")
    assert raised.value.outage
    assert proxy.count("RL.CHECK") == before + 1
    left = limiter.check(key, "100/d")["remaining"]
    assert left == (97 if where == "after" else 98)


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_peek_whose_reply_is_lost_is_sent_again(driver: Driver, proxy: Proxy, key: str, where: Any) -> None:
    limiter = driver.limiter(proxy.url)
    limiter.check(key, "100/d")
    proxy.cut("RL.PEEK", where)
    assert limiter.peek(key, "100/d")["remaining"] == 99
