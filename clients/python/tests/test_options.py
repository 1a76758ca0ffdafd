"""An application's arguments are tested at once."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from rl_limits import AsyncLease, AsyncRateLimiter, Lease, RateLimiter
from rl_limits.asgi import RateLimitMiddleware

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"outage": "locl"}, "outage is 'locl', expected one of raise, allow, deny, local"),
    ({"outage": None}, "outage is None"),
    ({"processes": 0}, "processes is 0, expected an integer from 1"),
    ({"processes": 0.25}, r"processes is 0\.25, expected an integer from 1"),
    ({"processes": True}, "processes is True"),
    ({"share": 0.25}, "the option 'share' is unknown, expected one of outage, processes"),
    ({"remember_denials": -1}, "remember_denials is -1, expected an integer from 0"),
    ({"remember_denials": 1.5}, r"remember_denials is 1\.5"),
    ({"concurrency": 0}, "concurrency is 0, expected an integer from 1"),
    ({"queue_timeout": -1}, "queue_timeout is -1, expected seconds from 0"),
    ({"queue_timeout": False}, "queue_timeout is False, expected seconds from 0"),
    ({"queue_timeout": float("nan")}, "queue_timeout is nan"),
    ({"separately": "yes"}, "separately is 'yes', expected True or False"),
    ({"on_outage": "print"}, "on_outage is 'print', expected a function"),
    ({"on_misconfigured": 1}, "on_misconfigured is 1, expected a function"),
    ({"policies": ["5/m"]}, "policies is .*, expected a mapping"),
    ({"policies": {"free": "5 per minute"}}, "policy 'free' has '5 per minute'"),
    ({"policies": {"free": ["5/m", "@free"]}}, "policy 'free' has '@free', expected a rule"),
]
OF_URL: list[tuple[dict[str, Any], str]] = [
    ({"timeout": 0}, "timeout is 0, expected seconds above 0"),
    ({"timeout": "1"}, "timeout is '1'"),
    ({"timeout": float("inf")}, "timeout is inf"),
    ({"sokcet_timeout": 1}, "the option 'sokcet_timeout' is unknown"),
    ({"ssl_keyfile": "key.pem"}, "ssl_keyfile"),
]


@pytest.mark.parametrize("options, message", WRONG, ids=str)
def test_options_are_tested_at_once(options: dict[str, Any], message: str) -> None:
    makes: list[Callable[[], object]] = [
        lambda: RateLimiter(redis.Redis(), **options),
        lambda: AsyncRateLimiter(redis.asyncio.Redis(), **options),
        lambda: RateLimiter.from_url("redis://localhost", **options),
        lambda: RateLimiter.from_url("redis+cluster://localhost", **options),
        lambda: AsyncRateLimiter.from_url("redis://localhost", **options),
    ]
    for make in makes:
        with pytest.raises((TypeError, ValueError), match=message):
            make()


@pytest.mark.parametrize("options, message", OF_URL, ids=str)
def test_options_of_the_client_are_tested_at_once(options: dict[str, Any], message: str) -> None:
    for kind in (RateLimiter, AsyncRateLimiter):
        with pytest.raises((TypeError, ValueError), match=message):
            kind.from_url("redis://localhost", **options)
        if "ssl_keyfile" not in options:
            with pytest.raises((TypeError, ValueError), match=message):
                kind.from_url("redis+cluster://localhost", **options)
    with pytest.raises(ValueError, match="timeout"):
        AsyncRateLimiter(redis.asyncio.Redis(), timeout=-1)
    with pytest.raises((TypeError, ValueError)):
        RateLimiter.from_url("localhost")


def test_valid_options_are_accepted() -> None:
    options: Any = {"outage": "local", "processes": 4, "concurrency": 1, "policies": {"free": ["5/m", "slots:3"]}}
    RateLimiter.from_url("redis://localhost", timeout=1, socket_timeout=1, username="a", password="b", **options)
    RateLimiter.from_url("rediss://localhost", ssl_ca_certs="ca.pem", ssl_check_hostname=True, **options)
    AsyncRateLimiter.from_url("unix:///run/redis.sock", max_connections=5, **options)
    RateLimiter.from_url("redis+cluster://localhost", require_full_coverage=False, **options)


async def later(scope: object) -> bool:
    return False


class Later:
    async def __call__(self, scope: object) -> str:
        return "k"


@pytest.mark.parametrize("rules", ["5", "5 per minute", "log:/m", ["5/m", "10/s 20/m"], "slots:"])
def test_texts_that_are_no_rules_are_refused_at_once(rules: Any) -> None:
    limiter, asynchronous = RateLimiter(redis.Redis()), AsyncRateLimiter(redis.asyncio.Redis())
    makes: list[Callable[[], object]] = [
        lambda: RateLimitMiddleware(None, asynchronous, rules),  # type: ignore[arg-type]
        lambda: Lease(limiter, "k", rules),
        lambda: AsyncLease(asynchronous, "k", rules),
    ]
    for make in makes:
        with pytest.raises(ValueError, match=r"expected \[algorithm:\]limit/period"):
            make()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"count": "fialed"}, "count is 'fialed', expected one of all, failed, successful"),
        ({"headers": "draft-7"}, "headers is 'draft-7', expected one of draft-11, legacy, none"),
        ({"prefix": 129}, r"prefix is 129, expected an integer 0\.\.128"),
        ({"key": "ip"}, "key is 'ip', expected a function"),
        ({"skip": True}, "skip is True, expected a function"),
        ({"skip": later}, "skip is .*, expected a function that is not async"),
        ({"key": Later()}, "key is .*, expected a function that is not async"),
        ({"limits": ""}, "limits is ''"),
        ({"limits": []}, "limits is an empty list"),
        ({"limits": "5/m,ban=1h", "count": "failed"}, "limits has '5/m,ban=1h', expected rules without ban="),
        ({"limits": None}, "limits is None, expected the text of a rule"),
        ({"limits": [5]}, "limits has 5, expected the text of a rule"),
        ({"limits": ["5/m", "slots:4"]}, "limits has 'slots:4', expected other rules: slots are held"),
        ({"limits": "slots:4,cost=1", "count": "successful"}, "limits has 'slots:4,cost=1', expected other rules"),
        ({"limit": "5/m"}, "limit"),
    ],
)
def test_options_of_the_middleware(options: dict[str, Any], message: str) -> None:
    limiter = AsyncRateLimiter(redis.asyncio.Redis())
    with pytest.raises((TypeError, ValueError), match=message):
        RateLimitMiddleware(None, limiter, **{"limits": "5/m", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", [0, -1, "30", float("nan"), 366 * 86_400 + 1])
def test_the_ttl_of_a_hold_is_bounded(ttl: Any) -> None:
    for limiter in (RateLimiter(redis.Redis()), AsyncRateLimiter(redis.asyncio.Redis())):
        with pytest.raises(
            (TypeError, ValueError), match=r"ttl is .*, expected seconds above 0 and at most 31,622,400"
        ):
            limiter.hold("k", "slots:1", ttl=ttl)


CALLS = """
from rl_limits import AsyncRateLimiter, RateLimiter

RateLimiter.from_url("redis://localhost", outage="local", processes=4, socket_timeout=1, timeout=1)
RateLimiter.from_url("redis://localhost", outage="locl")
AsyncRateLimiter.from_url("redis://localhost", share=0.5)
RateLimiter.from_url("redis://localhost", sokcet_timeout=1)
RateLimiter.from_url("redis://localhost", processes="4")
"""


def test_mypy_sees_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    command = [sys.executable, "-B", "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", tmp_path / "calls.py"]
    seen = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    assert [line.split(":")[1] for line in seen.splitlines() if ": error:" in line] == ["5", "6", "7", "8"], seen
