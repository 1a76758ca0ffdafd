"""Servers that cannot decide, each for its own reason, and what `outage` answers for them."""

from __future__ import annotations

from typing import Any

import pytest

import outages
import servers
from drivers import Driver, Failed

MODES = {
    "allow": {"verdict": "allowed", "source": "outage"},
    "deny": {"verdict": "limited", "source": "outage", "wait_ms": 1000},
    "local": {"verdict": "allowed", "source": "local", "remaining": 4},
}


@pytest.mark.parametrize("outage", outages.ALL)
def test_outage_answers(driver: Driver, key: str, outage: str) -> None:
    with outages.ALL[outage]() as url:
        for mode, answer in MODES.items():
            reply = driver.limiter(url, outage=mode).check(key, "5/d")
            assert reply | answer == reply, mode
        with pytest.raises(Failed) as raised:
            driver.limiter(url).check(key, "5/d")
        assert raised.value.outage


@pytest.mark.parametrize("code", outages.REPLIES)
def test_an_error_reply_changes_no_state(driver: Driver, key: str, code: str) -> None:
    keys: list[Any] = [["{a}1", ["5/d"]], ["{a}2", ["5/d"]]] if code == "TRYAGAIN" else [[key, ["5/d"]]]
    with outages.REPLIES[code]() as url:
        limiter = driver.limiter(url)
        for _ in range(5):
            with pytest.raises(Failed) as raised:
                limiter("check_all", limits=keys)
            assert raised.value.outage
        assert not limiter("state")["away"]
        assert not limiter.events("outage")


@pytest.mark.parametrize("mode", ["raise", *MODES])
def test_only_checks_are_answered(shared: Driver, dead: str, key: str, mode: str) -> None:
    limiter = shared.limiter(dead, outage=mode)
    for call, more in (
        ("reset", {}),
        ("refund", {"units": 1, "rules": ["5/d"]}),
        ("sync", {"remaining": 1, "rule": "5/d"}),
        ("renew", {"own_id": "i", "ttl_ms": 1000}),
        ("settle", {"own_id": "i"}),
        ("plan", {"policy": "p"}),
    ):
        with pytest.raises(Failed) as raised:
            limiter(call, key=key, **more)
        assert raised.value.outage, call
    limiter.close()


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_check_is_answered(shared: Driver, dead: str, key: str, mode: str) -> None:
    limiter = shared.limiter(dead, outage=mode)
    verdict, source = MODES[mode]["verdict"], MODES[mode]["source"]
    limits = [[f"{key}:a", ["5/d"]], [f"{key}:b", ["9/d"]]]
    answers = [
        limiter("check_all", limits=limits),
        limiter("check_any", limits=limits),
        limiter("wait", key=key, rules=["5/d"], timeout_ms=100),
        limiter("peek_all", key=key, rules=["5/d"]),
        limiter.peek(key, "5/d"),
    ]
    assert {(answer["verdict"], answer["source"]) for answer in answers} == {(verdict, source)}
    limiter.close()


def test_outages_are_counted(shared: Driver, dead: str, key: str) -> None:
    limiter = shared.limiter(dead, outage="allow")
    for _ in range(20):
        limiter.check(key, "5/s")
    assert limiter("state") == {"away": True, "outages": 20}
    [event] = limiter.events("outage")
    assert event["away"]
    assert event["node"].endswith(dead.rpartition(":")[2])
    assert event["error"]
    limiter.close()


def test_a_server_without_the_module_says_so(driver: Driver, key: str) -> None:
    with servers.start(module=False) as plain:
        limiter = driver.limiter(plain.url, outage="deny")
        assert limiter.check(key, "5/s")["source"] == "outage"
        [event] = limiter.events("misconfigured")
        assert "loadmodule" in event["advice"]
