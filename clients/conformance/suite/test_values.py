"""A wrong value is the caller's error, whatever the server does and `outage` says. Nothing is sent or counted."""

from __future__ import annotations

from typing import Any

import pytest

from drivers import Cannot, Driver, Failed

NAN, INFINITY, UNDEFINED = {"is": "nan"}, {"is": "infinity"}, {"is": "undefined"}
MINUS_INFINITY, OBJECT = {"is": "-infinity"}, {"is": "object"}

NO_NUMBER = [-1, 1.5, NAN, INFINITY, True, "1", UNDEFINED, OBJECT, 10**9 + 1]
NO_TIME = [-1, -0.5, NAN, INFINITY, MINUS_INFINITY, True, "soon", OBJECT]
NO_KEY = ["", UNDEFINED, None, NAN, True, 1.5, OBJECT, []]
NO_RULES = [[], "", [""], UNDEFINED, None, 1, True, OBJECT, [1], [None]]
#: Costs that are absent, or a number as text, may be what a caller of some language means.
NO_COST = [*NO_NUMBER[:5], [2, 1], [-1, 1], [1.5, 2], {"a": -1}, {"a": 1.5}, {"a": NAN}]

CALLS: list[tuple[str, dict[str, Any]]] = [
    *(("check", {"key": key}) for key in NO_KEY),
    *(("check", {"rules": rules}) for rules in NO_RULES),
    *(("check", {"cost": cost}) for cost in NO_COST),
    *(("peek", {"key": key}) for key in NO_KEY[:3]),
    *(("peek", {"cost": cost}) for cost in NO_COST[:3]),
    *(("peek_all", {"rules": rules}) for rules in NO_RULES[:3]),
    *(("check_all", {"limits": [["k", rules]]}) for rules in NO_RULES),
    *(("check_all", {"limits": [[key, ["5/s"]]]}) for key in NO_KEY),
    *(("check_all", {"limits": [["k", ["5/s"]]], "cost": cost}) for cost in NO_COST),
    ("check_all", {"limits": []}),
    ("check_any", {"limits": []}),
    *(("check_any", {"limits": [["k", rules]]}) for rules in NO_RULES[:3]),
    *(("wait", {"timeout_ms": time}) for time in NO_TIME),
    *(("wait", {"key": key, "timeout_ms": 1}) for key in NO_KEY[:3]),
    *(("enter", {"hold": "h", "ttl_ms": time}) for time in [*NO_TIME, 0]),
    *(("enter", {"hold": "h", "ttl_ms": 1000, "cost": cost}) for cost in NO_COST[:3]),
    *(("enter", {"hold": "h", "ttl_ms": 1000, "timeout_ms": time}) for time in NO_TIME[:4]),
    *(("settle", {"own_id": "i", "cost": cost}) for cost in NO_NUMBER[:5]),
    *(("settle", {"own_id": "i", "key": key}) for key in NO_KEY[:3]),
    *(("renew", {"own_id": "i", "ttl_ms": time}) for time in [*NO_TIME, 0]),
    *(("refund", {"units": units}) for units in NO_NUMBER),
    *(("pause", {"time_ms": time}) for time in [*NO_TIME, 0]),
    *(("plan", {"policy": "p", "time_ms": time}) for time in [*NO_TIME[:5], 0]),
    *(("sync", {"rule": "5/s", "remaining": units}) for units in NO_NUMBER[:5]),
    *((call, {"key": key}) for call in ("reset", "resume", "unplan") for key in NO_KEY[:3]),
]
USUAL: dict[str, dict[str, Any]] = {
    "check": {"rules": ["5/s"]},
    "peek": {"rules": ["5/s"]},
    "peek_all": {"rules": ["5/s"]},
    "check_all": {},
    "check_any": {},
    "wait": {"rules": ["5/s"], "timeout_ms": 10},
    "enter": {"rules": ["5/s"]},
    "refund": {"rules": ["5/s"]},
}


@pytest.mark.parametrize("outage", ["raise", "allow", "deny", "local"])
def test_a_wrong_value_is_the_callers_error(shared: Driver, dead: str, outage: str) -> None:
    limiter = shared.limiter(dead, outage=outage)
    wrong = []
    for call, given in CALLS:
        arguments = {**({} if "limits" in given else {"key": "k"}), **USUAL.get(call, {}), **given}
        try:
            result = limiter(call, **arguments)
        except Cannot:
            continue
        except Failed as error:
            if error.outage or error.kind not in shared.stack.faults:
                wrong.append(f"{call} {given}: {error}")
        else:
            wrong.append(f"{call} {given}: {result}")
    assert not wrong, "\n".join(wrong)
    assert limiter("state")["outages"] == 0
    limiter.close()


@pytest.mark.parametrize("units", [-500, -1, 1.5, NAN, True, 10**9 + 1])
def test_a_lease_hands_out_whole_units(shared: Driver, server: Any, key: str, units: Any) -> None:
    limiter = shared.limiter(server.url)
    limiter("lease", lease=key, key=key, rules=["1000/d"], ttl_ms=2000, most=100)
    assert limiter("take", lease=key, units=10)["verdict"] == "allowed"
    with pytest.raises((Failed, Cannot)) as raised:
        limiter("take", lease=key, units=units)
    if isinstance(raised.value, Failed):
        assert raised.value.kind in shared.stack.faults
    limiter("give_up", lease=key)
    assert limiter.peek(key, "1000/d")["remaining"] == 990
    limiter.close()


@pytest.mark.parametrize("cost", [-1000, 1.5])
def test_no_cost_refills_a_local_limit(shared: Driver, dead: str, key: str, cost: Any) -> None:
    limiter = shared.limiter(dead, outage="local")
    for _ in range(3):
        assert limiter.check(key, "3/d")["verdict"] == "allowed"
    with pytest.raises((Failed, Cannot)):
        limiter.check(key, "3/d", cost=cost)
    assert limiter.check(key, "3/d")["verdict"] == "limited"
    limiter.close()


OPTIONS = [
    *({"timeout_ms": time} for time in [0, -1, NAN, INFINITY]),
    *({"queue_timeout_ms": time} for time in [-1, NAN, INFINITY]),
    *({"concurrency": many} for many in [0, -1, 1.5, NAN]),
    *({"processes": many} for many in [0, -1, 1.5, NAN]),
    *({"remember_denials": many} for many in [-1, 1.5, NAN]),
    {"outage": "maybe"},
    {"engine": "lua"},
]


def test_a_wrong_option_is_the_callers_error(shared: Driver, dead: str) -> None:
    wrong = []
    for options in OPTIONS:
        try:
            shared.limiter(dead, **options)
        except Cannot:
            continue
        except Failed as error:
            if error.kind not in shared.stack.faults:
                wrong.append(f"{options}: {error}")
        else:
            wrong.append(f"{options}: accepted")
    assert not wrong, "\n".join(wrong)


def test_keys_of_text_bytes_and_numbers(shared: Driver, server: Any, key: str) -> None:
    limiter = shared.limiter(server.url)
    text = limiter.check(f"{key}-text", "5/d")
    assert limiter.check({"is": "bytes", "hex": f"{key}-text".encode().hex()}, "5/d") == {**text, "remaining": 3}
    number = int.from_bytes(key.encode()[-4:], "big")
    for given, left in (str(number), 4), (number, 3):
        try:
            assert limiter.check(given, "5/d")["remaining"] == left
        except Cannot:
            assert isinstance(given, int)
    odd = {"is": "bytes", "hex": "ff00" + key.encode().hex()}
    assert limiter.check(odd, "5/d")["remaining"] == 4
    limiter.close()


UNREADABLE = [b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*0\r\n", b"*1\r\n:0\r\n", b"*5\r\n:9\r\n:1\r\n:1\r\n:0\r\n:0\r\n"]
UNREADABLE += [
    b"*5\r\n:0\r\n$1\r\nx\r\n:1\r\n:0\r\n:0\r\n",
    b"*6\r\n" + b":0\r\n" * 6,
    b"$300\r\n" + b"x" * 300 + b"\r\n",
]


@pytest.mark.parametrize("reply", UNREADABLE)
def test_a_reply_of_another_shape_is_an_outage_of_a_wrong_server(
    shared: Driver, proxy: Any, key: str, reply: bytes
) -> None:
    limiter = shared.limiter(proxy.url, outage="raise")
    with proxy.rubbish(reply), pytest.raises(Failed, match="unreadable reply") as raised:
        limiter.check(key, "5/s")
    assert raised.value.outage
    assert len(raised.value.text) < 300
    assert limiter.events("misconfigured")
    assert limiter.check(key, "5/s")["source"] == "server"
    limiter.close()


def test_numbers_as_decimal_text_are_read(shared: Driver, proxy: Any, key: str) -> None:
    limiter = shared.limiter(proxy.url)
    with proxy.rubbish(b"*5\r\n" + b"".join(b"$1\r\n%d\r\n" % n for n in (1, 5, 0, 7, 9))):
        reply = limiter.check(key, "5/s")
    assert (reply["verdict"], reply["limit"], reply["remaining"]) == ("limited", 5, 0)
    assert (reply["wait_ms"], reply["reset_ms"]) == (7, 9)
    limiter.close()
