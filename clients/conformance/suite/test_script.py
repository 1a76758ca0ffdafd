"""The engine `script`, on servers without the module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import servers
from drivers import Driver, Failed
from proxy import Proxy

#: One after the other. `reply` has verdict, limit and remaining, or is a number.
CALLS: list[dict[str, Any]] = [
    {"check": "log", "rules": ["3/d"], "reply": ["allowed", 3, 2]},
    {"check": "log", "rules": ["3/d"], "cost": 2, "reply": ["allowed", 3, 0]},
    {"check": "log", "rules": ["3/d"], "reply": ["limited", 3, 0]},
    {"peek": "log", "rules": ["3/d"], "cost": 0, "reply": ["allowed", 3, 0]},
    {"refund": "log", "rules": ["3/d"], "units": 2, "reply": 2},
    {"peek": "log", "rules": ["3/d"], "reply": ["allowed", 3, 2]},
    {"reset": "log"},
    {"peek": "log", "rules": ["3/d"], "reply": ["allowed", 3, 3]},
    {
        "check": "several",
        "rules": ["window:9/d", "bucket:5/d,burst=7,name=b", "leaky:1/d,queue=3"],
        "reply": ["allowed", 4, 3],
    },
    {
        "check": "several",
        "rules": ["window:9/d", "bucket:5/d,burst=7,name=b"],
        "cost": {"b": 6},
        "reply": ["allowed", 7, 0],
    },
    {"check": "several", "rules": ["window:9/d", "bucket:5/d,burst=7,name=b"], "reply": ["limited", 7, 0]},
    {
        "check": "others",
        "rules": ["fixed:9/d,name=a", "bucket:9/d,name=b", "window:5/d,cost=1"],
        "cost": {"a": 1, "": 7},
        "reply": ["allowed", 9, 2],
    },
    {"check": "fixed", "rules": ["fixed:2/month,tz=+02:00", "fixed:9/w,cost=3"], "cost": 2, "reply": ["allowed", 2, 0]},
    {"check": "nothing", "rules": ["0/s"], "reply": ["limited", 0, 0]},
    {"check": "trial", "rules": ["1/d,shadow"], "reply": ["allowed", -1, -1]},
    {"check": "every", "rules": ["1/d,count=all"], "cost": 1, "reply": ["allowed", 1, 0]},
    {"check": "{a}tag", "rules": ["1/d"], "reply": ["allowed", 1, 0]},
]
#: What the script cannot do.
REFUSED = [
    ("slots:4", "slots in the rule 'slots:4' needs the module, but the engine is 'script'"),
    ("slots:4,cost=1", "slots in the rule 'slots:4,cost=1' needs the module, but the engine is 'script'"),
    ("5/m,ban=1m:1h", "ban in the rule '5/m,ban=1m:1h' needs the module, but the engine is 'script'"),
    (
        "fixed:5/d,name=a,keep=7",
        "keep in the rule 'fixed:5/d,name=a,keep=7' needs the module, but the engine is 'script'",
    ),
    ("@free", "the policy '@free' needs the module, but the engine is 'script'"),
    ("@plan:free", "the policy '@plan:free' needs the module, but the engine is 'script'"),
]


@pytest.fixture(scope="session")
def plain() -> Iterator[servers.Server]:
    with servers.start(module=False) as server:
        yield server


def test_the_script_answers_as_the_module_does(shared: Driver, plain: servers.Server) -> None:
    with plain.client() as client:
        client.flushall()
        client.script_flush()
    limiter = shared.limiter(plain.url, engine="script")
    for given in CALLS:
        [call, *_] = given
        arguments = {name: value for name, value in given.items() if name not in (call, "reply")}
        answer = limiter(call, key=given[call], **arguments)
        if isinstance(answer, dict):
            answer = [answer["verdict"], answer["limit"], answer["remaining"]]
        if "reply" in given:
            assert answer == given["reply"], given
    limiter.close()


@pytest.mark.parametrize(("rule", "error"), REFUSED)
def test_what_needs_the_module_is_refused(shared: Driver, dead: str, key: str, rule: str, error: str) -> None:
    for outage in "raise", "allow":
        limiter = shared.limiter(dead, engine="script", outage=outage)
        with pytest.raises(Failed) as raised:
            limiter.check(key, rule)
        assert error in raised.value.text
        assert not raised.value.outage
        limiter.close()


@pytest.mark.parametrize("call", ["pause", "resume", "wait", "plan", "unplan", "sync"])
def test_commands_of_the_module_are_refused(shared: Driver, dead: str, key: str, call: str) -> None:
    limiter = shared.limiter(dead, engine="script")
    more = {"wait": {"rules": ["5/d"], "timeout_ms": 1}, "pause": {"time_ms": 9}, "plan": {"policy": "p"}}
    more["sync"] = {"remaining": 1, "rule": "5/d"}
    with pytest.raises(Failed, match="needs the module") as raised:
        limiter(call, key=key, **more.get(call, {}))
    assert not raised.value.outage
    limiter.close()


def test_keys_are_checked_one_by_one(shared: Driver, plain: servers.Server, key: str) -> None:
    limiter = shared.limiter(plain.url, engine="script")
    limits = [[f"{key}:a", ["5/d,name=x", "bucket:9/d"]], [f"{key}:b", ["1/d"]]]
    assert limiter("check_all", limits=limits, cost={"x": 2})["verdict"] == "allowed"
    report = limiter("check_all", limits=limits, cost={"x": 2})
    assert (report["verdict"], report["key"]) == ("limited", f"{key}:b")
    assert limiter.peek(f"{key}:a", "5/d,name=x")["remaining"] == 3
    limiter.close()


def test_a_script_that_the_server_forgot_is_sent_again(shared: Driver, plain: servers.Server, key: str) -> None:
    proxy = Proxy(plain.port)
    limiter = shared.limiter(proxy.url, engine="script")
    limiter.check(key, "9/d")
    with plain.client() as client:
        client.script_flush()
    assert limiter.check(key, "9/d")["remaining"] == 7
    limiter.check(key, "9/d")
    assert proxy.count("EVAL") <= 2
    limiter.close()
    proxy.close()


def test_a_script_is_sent_once(shared: Driver, plain: servers.Server, key: str) -> None:
    proxy = Proxy(plain.port)
    limiter = shared.limiter(proxy.url, engine="script")
    limiter.check(key, "100/d")
    proxy.cut("EVALSHA", "after")
    with pytest.raises(Failed) as raised:
        limiter.check(key, "100/d")
    assert raised.value.outage
    assert limiter.check(key, "100/d")["remaining"] == 97
    limiter.close()
    proxy.close()
