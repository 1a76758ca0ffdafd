"""Processes, threads and loops: nothing outlives its own, and nothing grows with the number of requests."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

import servers
from drivers import Driver, Failed, settled
from proxy import Proxy


def need(driver: Driver, what: str) -> None:
    if what not in driver.can:
        pytest.skip(f"its language has no {what}")


def test_children_take_leases_of_their_own(driver: Driver, server: servers.Server, key: str) -> None:
    need(driver, "fork")
    limiter = driver.limiter(server.url)
    limiter("lease", lease="a", key=key, rules=["1000/d"], ttl_ms=60_000, most=1000)
    for _ in range(40):
        limiter("take", lease="a", units=10)
    take = {"call": "take", "limiter": limiter.name, "lease": "a", "units": 10}
    children = settled([driver.start("fork", calls=[take] * 60) for _ in range(4)])
    taken = sum(one["result"]["verdict"] == "allowed" for child in children for one in child)
    own = sum(reply["verdict"] == "allowed" for reply in (limiter("take", lease="a", units=10) for _ in range(100)))
    assert 400 + 10 * (taken + own) <= 1000
    assert taken > 0


def test_children_have_places_of_their_own(driver: Driver, server: servers.Server, key: str) -> None:
    need(driver, "fork")
    proxy = Proxy(server.port)
    limiter = driver.limiter(proxy.url, concurrency=2, queue_timeout_ms=300)
    limiter.check(key, "1000/d")
    check = {"call": "check", "limiter": limiter.name, "key": key, "rules": ["1000/d"]}
    with proxy.delayed(0.5):
        held = [limiter.start("check", key=key, rules=["1000/d"]) for _ in range(2)]
        time.sleep(0.2)
        child = driver.start("fork", calls=[check] * 5)
        settled(held)
        results = child.result(30)
    assert [one.get("result", one).get("verdict") for one in results] == ["allowed"] * 5
    proxy.close()


def test_a_child_settles_its_holds_and_leases(driver: Driver, server: servers.Server, key: str) -> None:
    need(driver, "fork")
    limiter = driver.limiter(server.url)
    limiter("lease", lease="a", key=key, rules=["1000/d"], ttl_ms=1000, most=100)
    limiter("take", lease="a", units=1)
    calls = [
        {"call": "take", "limiter": limiter.name, "lease": "a", "units": 1},
        {
            "call": "enter",
            "limiter": limiter.name,
            "hold": "h",
            "key": f"{key}:h",
            "rules": ["slots:1"],
            "ttl_ms": 60_000,
        },
        {"call": "leave", "limiter": limiter.name, "hold": "h"},
    ]
    results = driver("fork", calls=calls)
    assert all("error" not in one for one in results)
    with server.client() as client:
        assert client.execute_command("RL.PEEK", f"{key}:h", "slots:1")[2] == 1
        servers.until(lambda: client.execute_command("RL.PEEK", key, "1000/d")[2] == 998)


def test_an_away_node_comes_back_in_a_child(driver: Driver, server: servers.Server, key: str) -> None:
    need(driver, "fork")
    proxy = Proxy(server.port)
    limiter = driver.limiter(proxy.url, outage="allow")
    limiter.check(key, "1000/d")
    with proxy.refused():
        assert limiter.check(key, "1000/d")["source"] == "outage"
        check = {"call": "check", "limiter": limiter.name, "key": key, "rules": ["1000/d"]}
        child = driver.start("fork", calls=[check] * 20_000)
        time.sleep(0.5)
    assert child.result(60)[-1]["result"]["source"] == "server"
    proxy.close()


def test_any_loop_may_use_a_limiter(driver: Driver, server: servers.Server, key: str) -> None:
    need(driver, "new_loop")
    limiter = driver.limiter(server.url)
    assert limiter.check(key, "100/d")["remaining"] == 99
    limiter("lease", lease="a", key=f"{key}:l", rules=["100/d"], ttl_ms=2000, most=10)
    own = {"limiter": limiter.name, "key": f"{key}:h", "rules": ["slots:1"]}
    calls: list[dict[str, Any]] = [
        {"call": "check", "limiter": limiter.name, "key": key, "rules": ["100/d"]},
        {"call": "enter", "hold": "h", "ttl_ms": 60_000, **own},
        {"call": "leave", "limiter": limiter.name, "hold": "h"},
        {"call": "take", "limiter": limiter.name, "lease": "a", "units": 1},
    ]
    for turn in range(3):
        results = driver("new_loop", calls=calls)
        assert [one.get("error") for one in results] == [None] * 4
        assert results[0]["result"]["remaining"] == 98 - 2 * turn
        assert limiter.check(key, "100/d")["remaining"] == 97 - 2 * turn
    with server.client() as client:
        assert client.execute_command("RL.PEEK", f"{key}:h", "slots:1")[2] == 1


def test_loops_side_by_side(driver: Driver, server: servers.Server, key: str) -> None:
    need(driver, "new_loop")
    limiter = driver.limiter(server.url, concurrency=3)
    check = {"call": "check", "limiter": limiter.name, "key": key, "rules": ["10000/d"]}
    loops = [driver.start("new_loop", calls=[check] * 50) for _ in range(6)]
    own = [limiter.start("check", key=key, rules=["10000/d"]) for _ in range(100)]
    results = [one for loop in settled(loops) for one in loop]
    assert {one["result"]["source"] for one in results} | {one["source"] for one in settled(own)} == {"server"}


@pytest.mark.parametrize("state", ["fine", "away", "silent"])
def test_a_process_ends_when_its_limiters_are_closed(
    driver: Driver, own_server: servers.Server, key: str, state: str
) -> None:
    limiter = driver.limiter(own_server.url, outage="allow")
    limiter.check(key, "5/s")
    limiter("lease", lease="a", key=key, rules=["100/d"], ttl_ms=2000, most=10)
    limiter("take", lease="a", units=1)
    limiter("enter", hold="h", key=f"{key}:h", rules=["5/d"], ttl_ms=60_000)
    if state == "away":
        own_server.stop()
        assert limiter.check(key, "5/s")["source"] == "outage"
    if state == "silent":
        own_server.process.send_signal(signal.SIGSTOP)
        assert limiter.check(key, "5/s")["source"] == "outage"
    began = time.monotonic()
    limiter.close()
    assert time.monotonic() - began <= 1.5
    driver.end(2.5)


def test_nothing_grows_with_the_number_of_requests(driver: Driver, server: servers.Server, key: str) -> None:
    """The queue for places is never empty."""
    limiter = driver.limiter(server.url, concurrency=1, queue_timeout_ms=30_000)
    waiting = [limiter.start("check", key=key, rules=["bucket:100000/s"]) for _ in range(300)]

    def serve(many: int) -> None:
        for _ in range(many):
            waiting.append(limiter.start("check", key=key, rules=["bucket:100000/s"]))
            waiting.pop(0).result(60)

    serve(10_000)
    before, most = memory(driver)
    for _ in range(8):  # a queue that is empty for a moment, since this process is slow, may forget what it kept
        serve(5000)
        assert memory(driver)[0] - before < most
    settled(waiting)


def memory(driver: Driver) -> tuple[int, int]:
    """KiB that the driver says it holds, or else those of its process, and by how many they may grow."""
    if "memory" in driver.can:
        return driver("memory") // 1024, 2 * 1024
    status = Path(f"/proc/{driver.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]), 24 * 1024


def test_saturation_is_no_outage(driver: Driver, server: servers.Server, key: str) -> None:
    proxy = Proxy(server.port)
    limiter = driver.limiter(proxy.url, concurrency=2, queue_timeout_ms=200, timeout_ms=10_000, outage="allow")
    limiter.check(key, "1000/d")
    with proxy.delayed(0.5):
        found = settled([limiter.start("check", key=key, rules=["1000/d"]) for _ in range(20)])
    refused = [one for one in found if isinstance(one, Failed)]
    assert {one.kind for one in refused} == {"Saturated"}
    assert not any(one.outage for one in refused)
    assert 2 <= len(found) - len(refused) <= 8
    assert not limiter("state")["away"]
    proxy.close()
