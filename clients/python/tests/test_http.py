"""What clients are told, for given reports."""

from typing import Any

import pytest

from rl_limits import Report, RuleReport
from rl_limits.http import fields


def rule(**numbers: Any) -> RuleReport:
    given = {"wait_ms": 0, "next_ms": 0, "reset_ms": 0, "remaining": 5, "denies": False, **numbers}
    return RuleReport("bucket:60/1m", "api", 1, shadow=False, limit=60, quota=60, period_ms=60_000, **given)


@pytest.mark.parametrize(
    "numbers, state",
    [
        ({"next_ms": 1, "reset_ms": 30_000}, '"api";r=5;t=1'),
        ({"next_ms": 1001, "reset_ms": 30_000}, '"api";r=5;t=2'),
        ({"next_ms": 0, "reset_ms": 0}, '"api";r=5'),
        ({"next_ms": -1, "reset_ms": -1}, '"api";r=5'),
        ({"denies": True, "wait_ms": 4_200, "next_ms": 900, "remaining": 0}, '"api";r=0;t=5'),
        ({"denies": True, "wait_ms": -1, "next_ms": 900, "remaining": 0}, '"api";r=0'),
    ],
)
def test_t_is_the_time_until_there_is_more(numbers: dict[str, Any], state: str) -> None:
    report = Report("limited" if numbers.get("denies") else "allowed", 0, (rule(**numbers),))
    assert fields(report)["RateLimit"] == state


def test_the_older_reset_is_the_time_until_all_is_back() -> None:
    assert fields(Report("allowed", 0, (rule(next_ms=1, reset_ms=30_000),)), "legacy")["X-RateLimit-Reset"] == "30"
