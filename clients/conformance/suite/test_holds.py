"""What was taken is given back: when a block ends, is cancelled, when a reply was lost, and after an outage."""

from __future__ import annotations

import time
from typing import Any

import pytest

import servers
from drivers import Cannot, Driver, Failed, Limiter
from proxy import Proxy


def free(server: servers.Server, key: str, many: int) -> int:
    with server.client() as client:
        return int(client.execute_command("RL.PEEK", key, f"slots:{many}")[2])


def enter(limiter: Limiter, name: str, key: str, rule: str, **more: Any) -> Any:
    return limiter("enter", hold=name, key=key, rules=[rule], **{"ttl_ms": 60_000, **more})


def test_a_slot_is_taken_while_the_block_runs(limiter: Limiter, server: servers.Server, key: str) -> None:
    assert enter(limiter, "a", key, "slots:1")["verdict"] == "allowed"
    with pytest.raises(Failed) as denied:
        enter(limiter, "b", key, "slots:1")
    assert not denied.value.outage
    assert denied.value.report
    assert denied.value.report["verdict"] == "limited"
    limiter("leave", hold="a")
    assert free(server, key, 1) == 1


def test_a_hold_is_renewed_and_not_lost(limiter: Limiter, server: servers.Server, key: str) -> None:
    enter(limiter, "a", key, "slots:1", ttl_ms=1500)
    time.sleep(3)
    assert free(server, key, 1) == 0
    assert limiter("lost", hold="a") is False
    limiter("leave", hold="a")
    assert free(server, key, 1) == 1


def test_a_hold_that_somebody_settles_is_lost(limiter: Limiter, server: servers.Server, key: str) -> None:
    enter(limiter, "a", key, "slots:1", ttl_ms=1500, own_id="mine")
    with server.client() as client:
        assert client.execute_command("RL.SETTLE", key, "mine") == 1
    servers.until(lambda: limiter("lost", hold="a"))
    limiter("leave", hold="a")


def test_a_hold_that_cannot_be_renewed_is_lost_at_its_end(driver: Driver, proxy: Proxy, key: str) -> None:
    limiter = driver.limiter(proxy.url)
    enter(limiter, "a", key, "slots:1", ttl_ms=4000)
    with proxy.refused():
        time.sleep(1)
        assert limiter("lost", hold="a") is False
        servers.until(lambda: limiter("lost", hold="a"))


def test_settled_at_its_real_cost(limiter: Limiter, key: str) -> None:
    enter(limiter, "a", key, "100/d", cost=50)
    assert limiter("hold_settle", hold="a", cost=20) is True
    assert limiter("hold_settle", hold="a", cost=20) is False
    limiter("leave", hold="a")
    assert limiter.peek(key, "100/d")["remaining"] == 80
    enter(limiter, "b", key, "100/d", cost=50)
    assert limiter("hold_refund", hold="b") is True
    assert limiter.peek(key, "100/d")["remaining"] == 80


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_settlement_that_meets_a_cut_connection_is_made(
    driver: Driver, proxy: Proxy, server: servers.Server, key: str, where: Any
) -> None:
    limiter = driver.limiter(proxy.url)
    enter(limiter, "a", key, "slots:1")
    proxy.cut("RL.SETTLE", where)
    limiter("leave", hold="a")
    servers.until(lambda: free(server, key, 1) == 1)


@pytest.mark.parametrize("outage", ["raise", "allow", "local"])
def test_a_settlement_that_meets_an_outage_is_made_when_it_is_over(
    driver: Driver, proxy: Proxy, server: servers.Server, key: str, outage: str
) -> None:
    limiter = driver.limiter(proxy.url, outage=outage)
    holds = [f"h{n}" for n in range(20)]
    for hold in holds:
        enter(limiter, hold, key, "slots:20")
    assert free(server, key, 20) == 0
    with proxy.refused():
        for hold in holds:
            limiter("leave", hold=hold)
        time.sleep(2.5)
    servers.until(lambda: free(server, key, 20) == 20)


def test_real_costs_survive_an_outage(driver: Driver, proxy: Proxy, server: servers.Server, key: str) -> None:
    limiter = driver.limiter(proxy.url)
    enter(limiter, "a", key, "100/d", cost=50)
    with proxy.refused():
        with pytest.raises(Failed) as raised:
            limiter("hold_settle", hold="a", cost=20)
        assert raised.value.outage
        limiter("leave", hold="a")
        time.sleep(1.5)
    with server.client() as client:
        servers.until(lambda: client.execute_command("RL.PEEK", key, "100/d")[2] == 80)


def test_the_hold_of_a_check_whose_reply_was_lost_is_given_back(
    driver: Driver, proxy: Proxy, server: servers.Server, key: str
) -> None:
    limiter = driver.limiter(proxy.url, outage="raise")
    limiter.check(f"{key}:other", "5/d")
    proxy.cut("RL.CHECK", "after")
    try:
        enter(limiter, "a", key, "slots:1")
    except Failed as error:
        assert error.outage
    else:
        limiter("leave", hold="a")
    servers.until(lambda: free(server, key, 1) == 1)


def test_a_check_with_the_id_of_a_hold_is_repeated(
    driver: Driver, proxy: Proxy, server: servers.Server, key: str
) -> None:
    limiter = driver.limiter(proxy.url, outage="raise")
    limiter.check(f"{key}:other", "5/d")
    proxy.cut("RL.CHECK", "after")
    assert enter(limiter, "a", key, "10/d")["verdict"] == "allowed"
    with server.client() as client:
        assert client.execute_command("RL.PEEK", key, "10/d")[2] == 9
    limiter("leave", hold="a")


def test_a_cancelled_hold_is_given_back(driver: Driver, proxy: Proxy, server: servers.Server, key: str) -> None:
    if "cancel" not in driver.can:
        pytest.skip("its calls cannot be cancelled")
    limiter = driver.limiter(proxy.url)
    limiter.check(f"{key}:other", "5/d")
    with proxy.delayed(0.5):
        entering = limiter.start("enter", hold="a", key=key, rules=["slots:1"], ttl_ms=60_000)
        servers.until(lambda: free(server, key, 1) == 0)
        driver.cancel(entering)
        with pytest.raises((Failed, Cannot)):
            entering.result(10)
    servers.until(lambda: free(server, key, 1) == 1)


def test_a_hold_waits_in_line(limiter: Limiter, server: servers.Server, key: str) -> None:
    enter(limiter, "a", key, "slots:1")
    waiting = limiter.start("enter", hold="b", key=key, rules=["slots:1"], ttl_ms=60_000, timeout_ms=20_000)
    time.sleep(0.3)
    assert not waiting.done()
    limiter("leave", hold="a")
    assert waiting.result(20)["verdict"] == "allowed"
    assert free(server, key, 1) == 0
    limiter("leave", hold="b")


def test_close_ends_the_tries(driver: Driver, proxy: Proxy, key: str) -> None:
    limiter = driver.limiter(proxy.url)
    enter(limiter, "a", key, "slots:1")
    with proxy.refused():
        limiter("leave", hold="a")
        began = time.monotonic()
        limiter.close()
        assert time.monotonic() - began < 1.5
    time.sleep(1.5)
    assert proxy.count("RL.SETTLE") == 0
