"""Each call, its arguments and its answer."""

from __future__ import annotations

import time
from typing import Any

import pytest

import servers
from drivers import Cannot, Driver, Failed, Limiter, settled


def test_check_and_peek(limiter: Limiter, key: str) -> None:
    reply = limiter.check(key, "bucket:10/s", "5/d", cost=2)
    assert reply["verdict"] == "allowed"
    assert (reply["limit"], reply["remaining"], reply["wait_ms"], reply["source"]) == (5, 3, 0, "server")
    assert limiter.peek(key, "5/d")["remaining"] == 3
    assert limiter.peek(key, "5/d")["remaining"] == 3
    denied = limiter.check(key, "5/d", cost=4)
    assert (denied["verdict"], denied["remaining"]) == ("limited", 3)
    assert 0 < denied["wait_ms"] <= 86_400_000
    never = limiter.check(key, "5/d", cost=6)
    assert (never["verdict"], never["wait_ms"]) == ("limited", -1)


def test_one_rule_needs_no_list(limiter: Limiter, key: str) -> None:
    assert limiter("check", key=key, rules="5/d")["remaining"] == 4
    assert limiter("check", key=key, rules=["5/d"])["remaining"] == 3


def test_costs_by_name(limiter: Limiter, key: str) -> None:
    rules = ["bucket:10/d,name=requests", "bucket:1000/d,name=tokens"]
    report = limiter("check_all", limits=[[key, rules]], cost={"tokens": 400})
    assert [rule["remaining"] for rule in report["rules"]] == [9, 600]
    assert [rule["name"] for rule in report["rules"]] == ["requests", "tokens"]
    report = limiter("check_all", limits=[[key, rules]], cost={"": 2, "tokens": 700})
    assert report["verdict"] == "limited"
    assert [rule["denies"] for rule in report["rules"]] == [False, True]
    assert [rule["remaining"] for rule in report["rules"]] == [9, 600]


def test_a_range_of_costs_gets_what_fits(limiter: Limiter, key: str) -> None:
    report = limiter("check_all", limits=[[key, ["10/d"]]], cost=[1, 7])
    assert report["granted"] == 7
    report = limiter("check_all", limits=[[key, ["10/d"]]], cost=[1, 7])
    assert (report["verdict"], report["granted"]) == ("allowed", 3)
    assert limiter("check_all", limits=[[key, ["10/d"]]], cost=[1, 7])["verdict"] == "limited"


def test_all_keys_or_none(limiter: Limiter, key: str) -> None:
    limits = [[f"{key}:a", ["5/d"]], [f"{key}:b", ["2/d"]]]
    for left in (1, 0):
        assert limiter("check_all", limits=limits)["rules"][1]["remaining"] == left
    report = limiter("check_all", limits=limits)
    assert (report["verdict"], report["key"]) == ("limited", f"{key}:b")
    assert limiter.peek(f"{key}:a", "5/d")["remaining"] == 3


def test_the_first_of_a_pool_that_lets_it_pass(limiter: Limiter, key: str) -> None:
    limits = [[f"{key}:a", ["1/d"]], [f"{key}:b", ["3/d"]]]
    assert limiter("check_any", limits=limits)["key"] == f"{key}:a"
    assert limiter("check_any", limits=limits)["key"] == f"{key}:b"
    assert limiter("check_any", limits=[[f"{key}:c", ["2/d"]], [f"{key}:d", ["9/d"]]], most=True)["key"] == f"{key}:d"


def test_refund_and_reset(limiter: Limiter, key: str) -> None:
    limiter.check(key, "5/d", cost=4)
    assert limiter("refund", key=key, units=3, rules=["5/d"]) == 3
    assert limiter.peek(key, "5/d")["remaining"] == 4
    assert limiter("reset", key=key) is True
    assert limiter("reset", key=key) is False
    assert limiter.peek(key, "5/d")["remaining"] == 5


def test_pause_and_resume(limiter: Limiter, key: str) -> None:
    assert 0 < limiter("pause", key=key, time_ms=60_000, reason="the upstream said so") <= 60_000
    assert limiter.check(key, "5/d")["verdict"] == "limited"
    assert limiter("resume", key=key) is True
    assert limiter("resume", key=key) is False
    assert limiter.check(key, "5/d")["verdict"] == "allowed"


def test_plans(limiter: Limiter, server: Any, key: str) -> None:
    with server.client() as client:
        client.execute_command("RL.POLICY", "SET", f"pro-{key}", "7/d")
    limiter("plan", key=key, policy=f"pro-{key}", time_ms=60_000)
    assert limiter.check(key, "@plan:free")["limit"] == 7
    assert limiter("unplan", key=key) is True
    assert limiter("unplan", key=key) is False


def test_sync_lowers_and_never_raises(limiter: Limiter, key: str) -> None:
    assert limiter("sync", key=key, remaining=2, rule="10/d") == 8
    assert limiter.peek(key, "10/d")["remaining"] == 2
    assert limiter("sync", key=key, remaining=9, rule="10/d") == 0


def test_settle_and_renew(limiter: Limiter, key: str) -> None:
    limiter("enter", hold=key, key=key, rules=["10/d"], cost=5, ttl_ms=60_000, own_id="mine")
    assert limiter("renew", key=key, own_id="mine", ttl_ms=30_000) is True
    assert limiter("settle", key=key, own_id="mine", cost=2) is True
    assert limiter("settle", key=key, own_id="mine", cost=2) is False
    assert limiter("renew", key=key, own_id="mine", ttl_ms=30_000) is False
    assert limiter.peek(key, "10/d")["remaining"] == 8
    limiter("leave", hold=key)


def test_a_wait_is_in_line_and_out_of_the_way(limiter: Limiter, key: str) -> None:
    assert limiter.check(key, "1/s")["verdict"] == "allowed"
    began = time.monotonic()
    waiting = limiter.start("wait", key=key, rules=["1/s"], timeout_ms=10_000, flow="a", weight=2, priority=1)
    assert limiter.check(f"{key}:other", "1/s")["verdict"] == "allowed"
    assert waiting.result()["verdict"] == "allowed"
    assert time.monotonic() - began > 0.5
    assert limiter.check(f"{key}:day", "1/d")["verdict"] == "allowed"
    assert limiter("wait", key=f"{key}:day", rules=["1/d"], timeout_ms=50)["verdict"] == "limited"


def test_peek_all_consumes_nothing(limiter: Limiter, key: str) -> None:
    for _ in range(2):
        report = limiter("peek_all", key=key, rules=["5/d", "bucket:9/m,name=b"])
        assert [rule["remaining"] for rule in report["rules"]] == [5, 9]


def test_a_block_denies(limiter: Limiter, server: Any, key: str) -> None:
    with server.client() as client:
        client.execute_command("RL.BLOCK", key, "EX", 60, "REASON", "tried passwords")
    reply = limiter.check(key, "5/d")
    assert reply["verdict"] == "blocked"
    assert 0 < reply["wait_ms"] <= 60_000


def test_an_error_of_the_server_is_raised(limiter: Limiter, key: str) -> None:
    with pytest.raises(Failed, match="nonsense") as raised:
        limiter.check(key, "nonsense")
    assert not raised.value.outage
    assert not limiter("state")["away"]


@pytest.mark.parametrize("outage", ["allow", "deny", "local"])
def test_a_wrong_rule_is_raised_whatever_outage_says(shared: Driver, server: Any, key: str, outage: str) -> None:
    limiter = shared.limiter(server.url, outage=outage)
    with pytest.raises(Failed, match="nonsense"):
        limiter.check(key, "nonsense")
    assert limiter("state") == {"away": False, "outages": 0}
    limiter.close()


def test_a_thousand_calls_at_once(limiter: Limiter, key: str) -> None:
    calls = [limiter.start("check", key=f"{key}:{n % 100}", rules=["10/d"]) for n in range(1000)]
    replies = settled(calls)
    assert sum(reply["verdict"] == "allowed" for reply in replies) == 1000
    assert all(limiter.peek(f"{key}:{n}", "10/d")["remaining"] == 0 for n in range(5))


def test_a_limit_is_shared_by_all_callers(limiter: Limiter, key: str) -> None:
    replies = settled([limiter.start("check", key=key, rules=["100/d"]) for _ in range(300)])
    assert sum(reply["verdict"] == "allowed" for reply in replies) == 100


def test_a_cancelled_wait_leaves_the_line(driver: Driver, server: Any, key: str) -> None:
    if "cancel" not in driver.can:
        pytest.skip("its calls cannot be cancelled")
    limiter = driver.limiter(server.url)
    limiter.check(key, "1/30s")
    waiting = limiter.start("wait", key=key, rules=["1/30s"], timeout_ms=60_000)
    servers.until(lambda: waiting_clients(server) == 1)
    driver.cancel(waiting)
    with pytest.raises((Failed, Cannot)):
        waiting.result(10)
    servers.until(lambda: waiting_clients(server) == 0)
    assert limiter.check(f"{key}:after", "1/d")["verdict"] == "allowed"


def waiting_clients(server: servers.Server) -> int:
    with server.client() as client:
        return int(client.info("ratelimit")["ratelimit_waiting_clients"])
