"""Without the server, `local` is an estimate: never too much at once, never more than twice that in a period, and a
wait that helps."""

from __future__ import annotations

import time
from typing import Any

import pytest

from drivers import Cannot, Driver, Failed, Limiter, settled

RULES = ["10/d", "log:10/d", "window:10/d", "fixed:10/d", "bucket:10/d", "leaky:10/d,queue=10"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("processes", [1, 3, 50])
def test_no_more_than_its_share_at_once(shared: Driver, dead: str, key: str, rule: str, processes: int) -> None:
    limiter = shared.limiter(dead, outage="local", processes=processes)
    found = settled([limiter.start("check", key=key, rules=[rule]) for _ in range(30)])
    assert {reply["source"] for reply in found} == {"local"}
    allowed = sum(reply["verdict"] == "allowed" for reply in found)
    share = max(1, 10 // processes)
    assert allowed == share or (rule.startswith("leaky") and 1 <= allowed <= share + 1)
    limiter.close()


@pytest.mark.parametrize("rule", ["20/s", "window:20/s", "fixed:20/s", "bucket:20/s"])
def test_no_more_than_twice_its_share_in_a_period(shared: Driver, dead: str, key: str, rule: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    passed = []
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        asked = time.monotonic()
        if limiter.check(key, rule)["verdict"] == "allowed":
            passed.append(asked)
    assert all(sum(at <= one < at + 0.9 for one in passed) <= 40 for at in passed)
    assert len(passed) >= 50
    limiter.close()


@pytest.mark.parametrize("rule", ["5/s", "window:5/s", "fixed:5/s", "bucket:5/s", "leaky:5/s,queue=2"])
def test_a_request_passes_after_its_wait(shared: Driver, dead: str, key: str, rule: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    for _ in range(4):
        replies = [limiter.check(key, rule) for _ in range(12)]
        reply = replies[-1]
        assert reply["verdict"] == "limited"
        assert 0 < reply["wait_ms"] <= 2000
        time.sleep(reply["wait_ms"] / 1000 + 0.005)
        assert limiter.check(key, rule)["verdict"] == "allowed"
    never = limiter.check(key, rule, cost=50)
    assert (never["verdict"], never["wait_ms"]) == ("limited", -1)
    limiter.close()


def test_all_rules_consume_or_none(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    for _ in range(2):
        assert limiter.check(key, "5/d", "bucket:2/d,name=b")["verdict"] == "allowed"
    assert limiter.check(key, "5/d", "bucket:2/d,name=b")["verdict"] == "limited"
    assert limiter.peek(key, "5/d")["remaining"] == 3
    report = limiter("check_all", limits=[[key, ["5/d"]], [f"{key}:b", ["1/d,name=x"]]], cost={"x": 1})
    assert (report["verdict"], report["source"]) == ("allowed", "local")
    limiter.close()


def test_costs_by_name_and_ranges(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    rules = ["fixed:10/d,name=requests", "bucket:100/d,name=tokens"]
    report = limiter("check_all", limits=[[key, rules]], cost={"tokens": 60})
    assert [rule["remaining"] for rule in report["rules"]] == [9, 40]
    report = limiter("check_all", limits=[[key, rules[:1]]], cost=[1, 50])
    assert (report["verdict"], report["granted"]) == ("allowed", 9)
    assert limiter.check(key, rules[0], cost=0)["verdict"] == "allowed"
    limiter.close()


def test_slots_are_the_holds_in_force(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    for name in "a", "b":
        limiter("enter", hold=key + name, key=key, rules=["slots:2"], ttl_ms=60_000)
    with pytest.raises(Failed) as denied:
        limiter("enter", hold=key + "c", key=key, rules=["slots:2"], ttl_ms=60_000)
    assert denied.value.report
    assert denied.value.report["source"] == "local"
    limiter("leave", hold=key + "a")
    limiter("enter", hold=key + "c", key=key, rules=["slots:2"], ttl_ms=60_000)
    limiter.close()


def test_a_settlement_gives_back(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    limiter("enter", hold=key, key=key, rules=["10/d"], cost=8, ttl_ms=60_000)
    assert limiter("hold_settle", hold=key, cost=3) is True
    assert limiter.peek(key, "10/d")["remaining"] == 7
    limiter.close()


def test_policies_stand_for_their_rules(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="local", policies={"login": ["2/d"]})
    for rule, verdict in ("@login", "allowed"), ("@plan:login", "allowed"), ("@login", "limited"):
        assert limiter.check(key, rule)["verdict"] == verdict
    limiter.close()


def test_a_limiter_in_the_process_asks_no_server(shared: Driver, key: str) -> None:
    limiter = shared.in_process(login=["2/d"])
    for verdict in "allowed", "allowed", "limited":
        reply = limiter.check(key, "@login")
        assert (reply["verdict"], reply["source"]) == (verdict, "local")
    limiter("enter", hold=key, key=f"{key}:h", rules=["slots:1"], ttl_ms=60_000)
    assert limiter("hold_refund", hold=key) is True
    assert limiter("refund", key=key, units=1, rules=["2/d"]) == 1
    assert limiter.check(key, "@login")["verdict"] == "allowed"
    assert limiter("reset", key=key) is True
    assert limiter("state") == {"away": False, "outages": 0}
    limiter.close()


def test_ten_thousand_keys_are_kept(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    limiter.check(f"{key}:old", "1/d")
    limiter.check(f"{key}:used", "1/d")
    for part in range(11):
        limiter.check(f"{key}:used", "1/d")
        settled([limiter.start("check", key=f"{key}:{part}:{n}", rules=["1/d"]) for n in range(1000)])
    assert limiter.check(f"{key}:used", "1/d")["verdict"] == "limited"
    assert limiter.check(f"{key}:old", "1/d")["verdict"] == "allowed"
    limiter.close()


def test_the_server_decides_again_from_what_it_knew(driver: Driver, proxy: Any, key: str) -> None:
    limiter = driver.limiter(proxy.url, outage="local")
    assert (limiter.check(key, "5/d")["source"], limiter.peek(key, "5/d")["remaining"]) == ("server", 4)
    with proxy.refused():
        assert [limiter.check(key, "5/d")["source"] for _ in range(2)] == ["local", "local"]
    end = time.monotonic() + 10
    while (reply := limiter.peek(key, "5/d"))["source"] != "server":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert reply["remaining"] == 4


def test_shadow_rules_deny_nobody(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="local")
    assert [limiter.check(key, "1/d,shadow")["verdict"] for _ in range(3)] == ["allowed"] * 3
    limiter.close()


def test_a_wrong_rule_is_an_error(shared: Driver, dead: str, key: str) -> None:
    limiter: Limiter = shared.limiter(dead, outage="local")
    for rule in "nonsense", "5/x", "bucket:5", "-1/s":
        with pytest.raises((Failed, Cannot)) as raised:
            limiter.check(key, rule)
        assert not getattr(raised.value, "outage", False)
    limiter.close()
