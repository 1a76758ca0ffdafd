"""The check that brings consumption over a fraction of the limit."""

import json
from typing import Any

import pytest
import servers

import limiters
from rl_limits import Reply
from rl_limits._replies import to_granted, to_reply

SHARED = json.loads((servers.ROOT / "clients/cases/crossed.json").read_text())


@pytest.mark.parametrize("case", SHARED["cases"], ids=str)
def test_replies_tell_crossings_alike_in_all_languages(case: Any) -> None:
    cost = () if case["cost"] is None else (case["cost"],)
    read = to_granted if len(case["reply"]) == 6 else to_reply
    assert read(case["reply"]).crossed(case["fraction"], *cost) == case["crossed"]


def test_a_wrong_fraction_is_an_error() -> None:
    for reply in (to_reply([0, 10, 2, 0, 1000]), to_reply([1, 10, 0, 500, 1000])):
        for text in SHARED["wrong"]:
            with pytest.raises(ValueError, match="expected a number above 0 and at most 1"):
                reply.crossed(float(text))
        for other in (True, "0.8", None):
            with pytest.raises(TypeError, match="the fraction is"):
                reply.crossed(other)  # type: ignore[arg-type]


def test_a_fixed_window_is_crossed_once(server: servers.Server) -> None:
    limiter = limiters.of(server)

    def told(key: str, costs: list[int]) -> list[bool]:
        return [limiter.check(key, "fixed:10/h,align=first", cost=cost).crossed(0.8, cost) for cost in costs]

    assert told("ones", [1] * 11) == [False] * 7 + [True] + [False] * 3
    assert told("more", [3, 3, 3, 3, 1]) == [False, False, True, False, False]
    ranged: Reply = limiter.check("ranged", "fixed:10/h,align=first", cost=(1, 9))
    assert ranged.granted == 9 and ranged.crossed(0.8)
