"""Whom to count at an address: the cases that the clients of all languages replay."""

import json
import logging
from typing import Any

import pytest
import servers

from rl_limits import network
from rl_limits.address import Networks

CASES = json.loads((servers.ROOT / "clients/cases/addresses.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['given']}, {case.get('prefix', 64)}")
def test_an_address_counts_the_same_client_in_all_languages(case: dict[str, Any]) -> None:
    assert network(case["given"], case.get("prefix", 64)) == case["network"]


@pytest.mark.parametrize("prefix", [-1, 129, 64.0, "64", None, True])
def test_a_prefix_is_an_integer_to_128(prefix: Any) -> None:
    for make in (lambda: network("2001:db8::1", prefix), lambda: network(None, prefix), lambda: Networks(prefix)):
        with pytest.raises((TypeError, ValueError), match=r"prefix is .*, expected an integer 0\.\.128"):
            make()


def test_callers_without_an_address_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counted = Networks()
    with caplog.at_level(logging.WARNING, "rl_limits"):
        assert [counted(address) for address in ("203.0.113.9", None, "", None)] == ["203.0.113.9", *["unknown"] * 3]
    assert len(caplog.records) == 1 and "share the limit" in caplog.text
