"""Values are tested before anything is sent or counted: a wrong one is the caller's error, and never an outage."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

import servers
from rl_limits import AsyncRateLimiter, Lease, RateLimiter

AWAY = "redis://127.0.0.1:1"

Call = Callable[[Any], Any]

CALLS: dict[str, Call] = {
    "key None": lambda it: it.check(None, "5/m"),
    "no key": lambda it: it.check("", "5/m"),
    "key NaN": lambda it: it.peek(math.nan, "5/m"),
    "key True": lambda it: it.reset(True),
    "key of several": lambda it: it.check_all([("a", "5/m"), ({}, "5/m")]),
    "rules None": lambda it: it.check("k", None),
    "empty rules": lambda it: it.check("k", ""),
    "rules of numbers": lambda it: it.peek_all("k", [5]),
    "cost below 0": lambda it: it.check("k", "5/m", cost=-1000),
    "cost too large": lambda it: it.check("k", "5/m", cost=10**9 + 1),
    "half a cost": lambda it: it.check("k", "5/m", cost=1.5),
    "cost True": lambda it: it.check("k", "5/m", cost=True),
    "cost NaN": lambda it: it.peek("k", "5/m", cost=math.nan),
    "range from 0": lambda it: it.check("k", "5/m", cost=(0, 5)),
    "range backwards": lambda it: it.check("k", "5/m", cost=(5, 2)),
    "half a range": lambda it: it.check("k", "5/m", cost=(5,)),
    "named cost below 0": lambda it: it.check("k", "5/m,name=a", cost={"a": -1}),
    "settled below 0": lambda it: it.settle("k", "id", cost=-5),
    "refund below 0": lambda it: it.refund("k", -5),
    "wait below 0": lambda it: it.wait("k", "5/m", -2),
    "wait NaN": lambda it: it.wait("k", "5/m", math.nan),
    "endless wait": lambda it: it.wait("k", "5/m", math.inf),
    "renewed for nothing": lambda it: it.renew("k", "id", 0),
    "pause below 0": lambda it: it.pause("k", -1),
    "pause NaN": lambda it: it.pause("k", math.nan),
    "plan below 0": lambda it: it.plan("k", "free", -1),
    "remaining below 0": lambda it: it.sync("k", -1, "5/m"),
}


@pytest.mark.parametrize("outage", ["raise", "allow", "deny", "local"])
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_is_no_outage(name: str, outage: Any) -> None:
    with RateLimiter.from_url(AWAY, outage=outage) as limiter, pytest.raises((TypeError, ValueError), match="expected"):
        CALLS[name](limiter)
    assert limiter.outages == 0

    async def tried() -> None:
        async with AsyncRateLimiter.from_url(AWAY, outage=outage) as limiter:
            await CALLS[name](limiter)

    with pytest.raises((TypeError, ValueError), match="expected"):
        asyncio.run(tried())


@pytest.mark.parametrize("units", [-500, 1.5, math.nan, True, None, 10**9 + 1])
def test_a_lease_hands_out_whole_units(units: Any, newest: servers.Server) -> None:
    with RateLimiter(newest.client()) as limiter, Lease(limiter, "lease", "1000/m") as lease:
        assert lease.take(5).allowed
        with pytest.raises((TypeError, ValueError), match="expected"):
            lease.take(units)


def test_whole_numbers_and_bytes_are_keys(newest: servers.Server) -> None:
    with RateLimiter(newest.client()) as limiter:
        keys: list[Any] = [7, "7", b"7"]
        for key in keys:
            limiter.check(key, "9/m")
        assert limiter.peek("7", "9/m").remaining == 6
