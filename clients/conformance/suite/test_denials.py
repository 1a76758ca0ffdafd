"""Denials that the process remembers."""

from __future__ import annotations

import time

import servers
from drivers import Driver
from proxy import Proxy


def test_a_denial_is_answered_here_until_its_wait_is_over(shared: Driver, proxy: Proxy, key: str) -> None:
    limiter = shared.limiter(proxy.url, remember_denials=100)
    for _ in range(2):
        assert limiter.check(key, "2/2s")["source"] == "server"
    denied = limiter.check(key, "2/2s")
    assert (denied["verdict"], denied["source"]) == ("limited", "server")
    sent = proxy.count("RL.CHECK")
    while (reply := limiter.check(key, "2/2s"))["source"] == "denial":
        assert reply["verdict"] == "limited"
        assert 0 < reply["wait_ms"] <= denied["wait_ms"]
        time.sleep(0.05)
    assert proxy.count("RL.CHECK") == sent + 1
    assert reply["verdict"] == "allowed"
    limiter.close()


def test_another_cost_or_rule_is_another_question(shared: Driver, server: servers.Server, key: str) -> None:
    limiter = shared.limiter(server.url, remember_denials=100)
    limiter.check(key, "5/d", cost=4)
    assert limiter.check(key, "5/d", cost=3)["verdict"] == "limited"
    assert limiter.check(key, "5/d", cost=1)["verdict"] == "allowed"
    assert limiter.check(key, "9/d", cost=1)["source"] == "server"
    limiter.close()


def test_a_block_is_remembered_for_a_second(shared: Driver, server: servers.Server, key: str) -> None:
    limiter = shared.limiter(server.url, remember_denials=100)
    with server.client() as client:
        client.execute_command("RL.BLOCK", key, "EX", 600)
        assert limiter.check(key, "5/d")["verdict"] == "blocked"
        client.execute_command("RL.UNBLOCK", key)
    assert limiter.check(key, "5/d")["source"] == "denial"
    servers.until(
        lambda: limiter.check(key, "50/d")["verdict"] == "allowed" and limiter.check(key, "5/d")["source"] == "server"
    )
    limiter.close()


def test_what_may_pass_at_any_time_is_not_remembered(shared: Driver, server: servers.Server, key: str) -> None:
    limiter = shared.limiter(server.url, remember_denials=100)
    for rules in (["1/d,count=all"], ["1/d,ban=1m:1h,name=b"]):
        for _ in range(4):
            assert limiter.check(f"{key}:{rules[0]}", *rules)["source"] == "server"
    limiter.close()


def test_refunds_and_resets_of_its_own_are_seen(shared: Driver, server: servers.Server, key: str) -> None:
    limiter = shared.limiter(server.url, remember_denials=100)
    for _ in range(2):
        limiter.check(key, "1/d")
    assert limiter.check(key, "1/d")["source"] == "denial"
    limiter("refund", key=key, units=1, rules=["1/d"])
    assert limiter.check(key, "1/d")["verdict"] == "allowed"
    limiter.check(key, "1/d")
    limiter("reset", key=key)
    assert limiter.check(key, "1/d")["verdict"] == "allowed"
    limiter.close()
