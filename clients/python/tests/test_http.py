"""The header fields of given reports."""

import json
from typing import Any

import pytest
import servers

from rl_limits import Report, RuleReport
from rl_limits._replies import to_report
from rl_limits.http import fields

SHARED = json.loads((servers.ROOT / "clients/cases/fields.json").read_text())["cases"]


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
def test_t_is_the_time_until_more_is_left(numbers: dict[str, Any], state: str) -> None:
    report = Report("limited" if numbers.get("denies") else "allowed", 0, (rule(**numbers),))
    assert fields(report)["RateLimit"] == state


@pytest.mark.parametrize("case", SHARED, ids=lambda case: case["about"])
@pytest.mark.parametrize("headers", ["draft-11", "legacy", "none"])
def test_the_fields_are_those_of_all_languages(case: dict[str, Any], headers: Any) -> None:
    sent = {**case["reply"], "rules": [dict(rule) for rule in case["reply"]["rules"]]}
    told = fields(to_report(sent, "key"), headers)
    assert {name.lower(): text for name, text in told.items()} == case[headers]
