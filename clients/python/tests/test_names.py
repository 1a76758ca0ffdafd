"""One thing has one name in all languages."""

import dataclasses
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import servers

from rl_limits import (
    AsyncHold,
    AsyncLease,
    AsyncRateLimiter,
    DecisionEvent,
    Hold,
    Lease,
    MisconfiguredEvent,
    OutageEvent,
    RateLimiter,
    Reply,
    Report,
    RuleReport,
)
from rl_limits._options import Options
from rl_limits.asgi import RateLimitMiddleware

SHARED: dict[str, list[str]] = json.loads((servers.ROOT / "clients/conformance/names.json").read_text())


def options_of(function: Callable[..., Any]) -> set[str]:
    return {name for name, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize(
    "kind, names",
    [
        ("options", {*Options.__annotations__, *options_of(AsyncRateLimiter)}),
        ("middleware", options_of(RateLimitMiddleware)),
        ("lease", options_of(Lease)),
        ("lease", options_of(AsyncLease)),
    ],
)
def test_an_options_name_is_that_of_all_languages(kind: str, names: set[str]) -> None:
    assert names == {name.removesuffix("_ms") for name in SHARED[kind]}


@pytest.mark.parametrize(
    "kind, names",
    [
        ("reply", [field.name for field in dataclasses.fields(Reply)]),
        ("report", [field.name for field in dataclasses.fields(Report)]),
        ("rule_report", [field.name for field in dataclasses.fields(RuleReport)]),
        ("outage_event", OutageEvent._fields),
        ("misconfigured_event", MisconfiguredEvent._fields),
        ("decision_event", DecisionEvent._fields),
    ],
)
def test_a_fields_name_is_that_of_all_languages(kind: str, names: list[str]) -> None:
    assert sorted(names) == sorted(SHARED[kind])


@pytest.mark.parametrize("limiter", [RateLimiter, AsyncRateLimiter])
def test_a_commands_name_is_that_of_all_languages(limiter: type) -> None:
    assert [name for name in SHARED["commands"] if not hasattr(limiter, name)] == []


@pytest.mark.parametrize("limiter", [RateLimiter(redis.Redis()), AsyncRateLimiter(redis.asyncio.Redis())])
def test_a_holds_names_are_those_of_all_languages(limiter: RateLimiter | AsyncRateLimiter) -> None:
    hold: Hold | AsyncHold = limiter.hold("k", "5/m", ttl=1)
    known = {*dir(hold), *(name for kind in type(hold).__mro__ for name in getattr(kind, "__annotations__", ()))}
    assert [name for name in SHARED["hold"] if name not in known] == []


@pytest.mark.parametrize("twins", [(RateLimiter, AsyncRateLimiter), (Lease, AsyncLease), (Hold, AsyncHold)])
def test_asynchronous_methods_take_the_same_arguments(twins: tuple[type, type]) -> None:
    one, other = ({name: member for name, member in vars(twin).items() if callable(member)} for twin in twins)
    both = {name for name in one.keys() & other.keys() if not name.startswith("_")} - {"run"}
    assert {"take", "settle", "check"} & both
    for name in both:
        assert inspect.signature(one[name]).parameters == inspect.signature(other[name]).parameters, name
