"""When the limiter stops asking, at given times."""

import json
import logging
from typing import Any

import pytest

import servers
from rl_limits import MisconfiguredEvent, OutageEvent
from rl_limits._breaker import Breaker

ERROR = ConnectionError("gone")


def fail(breaker: Breaker, at_s: float, advice: str | None = None) -> None:
    """A check that the server does not decide."""
    breaker.failed(ERROR, at_s, advice)
    breaker.count()


def test_three_outages_in_a_row_stop_the_questions_for_a_second() -> None:
    told: list[OutageEvent] = []
    breaker = Breaker(told.append)
    for _ in range(2):
        assert breaker.may_ask(0)
        fail(breaker, 0)
    breaker.served()
    assert not told, "a success restarts the count"
    for _ in range(3):
        assert breaker.may_ask(10)
        fail(breaker, 10)
    assert told == [OutageEvent(True, ERROR, 0)]
    assert [breaker.may_ask(at) for at in (10, 10.5, 10.99)] == [False] * 3

    assert breaker.may_ask(11), "one request tries"
    assert not breaker.may_ask(11.1), "and others do not, until it is answered"
    fail(breaker, 11.2)
    fail(breaker, 11.9)  # a wait that began before
    assert not breaker.may_ask(11.95)
    assert breaker.may_ask(12)
    breaker.served()
    assert told[1:] == [OutageEvent(False, ERROR, 3)]
    assert breaker.may_ask(12.2) and breaker.may_ask(12.2)
    assert (breaker.outages, breaker.away) == (7, False)


CASES = json.loads((servers.ROOT / "clients/cases/breaker.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["about"]))
def test_limiters_stop_asking_alike_in_all_languages(case: Any) -> None:
    breaker = Breaker()
    for call in case["calls"]:
        now_s = call["at_ms"] / 1000
        if "asks" in call:
            assert breaker.may_ask(now_s) == call["asks"], call
        elif "failed" in call:
            breaker.failed(ERROR, now_s)
            assert breaker.away == call["failed"], call
        else:
            breaker.served()
            assert breaker.away == call["served"], call


def test_a_callback_that_fails_harms_nobody() -> None:
    def fails(event: OutageEvent) -> None:
        raise ValueError

    breaker = Breaker(fails)
    for _ in range(3):
        breaker.failed(ERROR, 0)
    assert breaker.away


def test_a_wrong_configuration_is_reported_at_once_and_then_each_minute() -> None:
    told: list[MisconfiguredEvent] = []
    breaker = Breaker(lambda event: None, told.append)
    for at in range(130):
        assert breaker.may_ask(at)
        fail(breaker, at, "load the module")
    assert [event.answered for event in told] == [0, 60, 60]
    assert {event.advice for event in told} == {"load the module"}
    breaker.failed(ERROR, 131, "give the password")
    assert told[3].advice == "give the password", "another fault is reported at once"
    breaker.failed(ERROR, 132)
    assert len(told) == 4, "an outage is no wrong configuration"
    for at in range(133, 180):
        breaker.served()  # a key that the rights cover
        breaker.failed(ERROR, at, "load the module")
    assert len(told) == 4, "answers to other keys do not repeat the report"


def test_without_a_listener_outages_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    breaker = Breaker()
    with caplog.at_level(logging.WARNING, "rl_limits"):
        for _ in range(5):
            fail(breaker, 0)
        breaker.served()
    assert [record.getMessage() for record in caplog.records] == [
        "the limiter stops asking its server for now (ConnectionError: gone)",
        "the limiter asks its server again, after 3 requests without it",
    ]
