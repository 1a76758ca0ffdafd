"""Units taken ahead and handed out in the process."""

from __future__ import annotations

import pytest

import servers
from drivers import Driver, Failed, Limiter, settled
from proxy import Proxy


def lease(limiter: Limiter, name: str, key: str, rule: str, **more: int) -> None:
    limiter("lease", lease=name, key=key, rules=[rule], **{"ttl_ms": 2000, "most": 100, **more})


def test_no_more_than_the_limit(limiter: Limiter, key: str) -> None:
    lease(limiter, key, key, "500/d")
    replies = settled([limiter.start("take", lease=key, units=1) for _ in range(800)])
    assert sum(reply["verdict"] == "allowed" for reply in replies) == 500
    limiter("give_up", lease=key)


def test_two_leases_never_take_more_than_the_limit(limiter: Limiter, key: str) -> None:
    for name in "a", "b":
        lease(limiter, key + name, key, "1000/d")
    taken = settled([limiter.start("take", lease=key + "ab"[n % 2], units=1 + n % 3) for n in range(900)])
    units = sum(1 + n % 3 for n, reply in enumerate(taken) if reply["verdict"] == "allowed")
    assert 900 <= units <= 1000
    for name in "a", "b":
        limiter("give_up", lease=key + name)
    assert limiter.peek(key, "1000/d")["remaining"] == 1000 - units


def test_what_is_left_comes_back(limiter: Limiter, key: str) -> None:
    lease(limiter, key, key, "1000/d", ttl_ms=60_000)
    used = sum(limiter("take", lease=key, units=3)["verdict"] == "allowed" for _ in range(100))
    limiter("give_up", lease=key)
    assert limiter.peek(key, "1000/d")["remaining"] == 1000 - 3 * used


def test_it_is_settled_when_nobody_takes(limiter: Limiter, server: servers.Server, key: str) -> None:
    lease(limiter, key, key, "1000/d")
    for _ in range(200):
        limiter("take", lease=key, units=1)
    with server.client() as client:
        servers.until(lambda: client.execute_command("RL.PEEK", key, "1000/d")[2] == 800)


def test_a_denial_waits_until_it_is_over(limiter: Limiter, key: str) -> None:
    lease(limiter, key, key, "2/d")
    assert [limiter("take", lease=key, units=1)["verdict"] for _ in range(4)] == ["allowed"] * 2 + ["limited"] * 2
    assert limiter("take", lease=key, units=1)["wait_ms"] > 0


def test_a_block_is_remembered_for_a_second(limiter: Limiter, server: servers.Server, key: str) -> None:
    lease(limiter, key, key, "1000/d", ttl_ms=60_000)
    with server.client() as client:
        client.execute_command("RL.BLOCK", key, "EX", 600)
        assert limiter("take", lease=key, units=1)["verdict"] == "blocked"
        client.execute_command("RL.UNBLOCK", key)
    servers.until(lambda: limiter("take", lease=key, units=1)["verdict"] == "allowed")
    limiter("give_up", lease=key)


@pytest.mark.parametrize(("outage", "source"), [("allow", "outage"), ("local", "local"), ("raise", None)])
def test_without_the_server(shared: Driver, dead: str, key: str, outage: str, source: str | None) -> None:
    limiter = shared.limiter(dead, outage=outage)
    lease(limiter, key, key, "10/d")
    if source is None:
        with pytest.raises(Failed) as raised:
            limiter("take", lease=key, units=1)
        assert raised.value.outage
    else:
        assert limiter("take", lease=key, units=1)["source"] == source
    limiter.close()


def test_units_of_an_outage_are_settled_afterwards(
    driver: Driver, proxy: Proxy, server: servers.Server, key: str
) -> None:
    limiter = driver.limiter(proxy.url)
    lease(limiter, key, key, "1000/d", ttl_ms=30_000)
    for _ in range(50):
        assert limiter("take", lease=key, units=2)["verdict"] == "allowed"
    with proxy.refused():
        try:
            limiter("give_up", lease=key)
        except Failed as error:
            assert error.outage
    with server.client() as client:
        servers.until(lambda: client.execute_command("RL.PEEK", key, "1000/d")[2] == 900)
