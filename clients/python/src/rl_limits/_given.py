"""Tests an application's arguments at once. An error names what was given and what was expected."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ._commands import Cost, texts, to_ms

#: The most units that a check may cost.
MOST_UNITS = 1_000_000_000

#: The shape of a rule. Names and numbers are the server's to judge.
RULE = re.compile(r"(?:[a-z]+:)?\d+/\d*[a-z]+(?:,[^,]+)*|slots:\d+(?:,[^,]+)*|@.+")


def known(names: Collection[str], expected: Collection[str]) -> None:
    for name in names:
        if name not in expected:
            raise TypeError(f"the option {name!r} is unknown, expected one of {', '.join(expected)}")


def one_of(name: str, given: object, expected: Collection[str]) -> None:
    if given not in expected:
        raise ValueError(f"{name} is {given!r}, expected one of {', '.join(expected)}")


def whole(name: str, given: object, least: int, most: float = math.inf) -> None:
    if type(given) is int and least <= given <= most:  # each `take` of a lease comes here
        return
    wanted = f"an integer from {least}" if most == math.inf else f"an integer {least}..{most}"
    raise _error(type(given) is int)(f"{name} is {given!r}, expected {wanted}")


def key(given: Any) -> str:
    """A key as the server gets it: a text or bytes, or a whole number as its text."""
    if type(given) is int:
        return str(given)
    if not isinstance(given, (str, bytes)):
        raise TypeError(f"the key is {given!r}, expected a text, bytes or a whole number")
    if not given:
        raise ValueError("the key is empty, expected a text, bytes or a whole number")
    return given  # type: ignore[return-value]


def texts_of_rules(name: str, given: Any) -> None:
    """Refuses what is no text of a rule, and no list of these."""
    if type(given) is str and given:
        return
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise _error(given == "")(f"{name} is {given!r}, expected the text of a rule, or a list of these")
    if not given:
        raise ValueError(f"{name} is an empty list, expected at least one rule")
    for text in given:
        if not isinstance(text, str) or not text:
            raise _error(text == "")(f"{name} has {text!r}, expected the text of a rule")


def limits(given: Any) -> None:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(f"the limits are {given!r}, expected a list of keys with their rules")
    if not given:
        raise ValueError("the limits are an empty list, expected at least one key with its rules")


def units(given: Any) -> None:
    whole("the number of units", given, 0, MOST_UNITS)


def cost(given: Cost) -> None:
    if type(given) is int and 0 <= given <= MOST_UNITS:
        return
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(f"the cost is {given!r}, expected a range such as (1, 100)")
        whole("the least cost", given[0], 1, MOST_UNITS)
        whole("the largest cost", given[1], given[0], MOST_UNITS)
    elif isinstance(given, Mapping) and given:
        for name, n in given.items():
            whole(f"the cost of {name!r}" if name else "the cost", n, 0, MOST_UNITS)
    else:
        wanted = f"an integer 0..{MOST_UNITS}, a range such as (1, 100), or costs by name"
        raise _error(type(given) is int or given == {})(f"the cost is {given!r}, expected {wanted}")


def seconds(name: str, given: object, most: float = sys.float_info.max, *, from_0: bool = False) -> None:
    wanted = "seconds from 0" if from_0 else "seconds above 0"
    wanted += "" if most == sys.float_info.max else f" and at most {most:,}"
    if type(given) not in (int, float):
        raise TypeError(f"{name} is {given!r}, expected {wanted}")
    if not (0 < given <= most or (from_0 and given == 0)):  # type: ignore[operator]
        raise ValueError(f"{name} is {given!r}, expected {wanted}")


def ms(name: str, given: Any, most: float = sys.float_info.max) -> int:
    """A time in seconds as whole milliseconds."""
    seconds(name, given, most)
    return to_ms(given)


def fraction(name: str, given: object) -> None:
    wanted = "a number above 0 and at most 1"
    if type(given) not in (int, float):
        raise TypeError(f"{name} is {given!r}, expected {wanted}")
    if not 0 < given <= 1:  # type: ignore[operator]
        raise ValueError(f"{name} is {given!r}, expected {wanted}")


def yes_or_no(name: str, given: object) -> None:
    if type(given) is not bool:
        raise TypeError(f"{name} is {given!r}, expected True or False")


def function(name: str, given: object) -> None:
    if given is not None and not callable(given):
        raise TypeError(f"{name} is {given!r}, expected a function")
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004
        raise TypeError(f"{name} is {given!r}, expected a function that is not async: nobody would await it")


def mapping(name: str, given: object) -> None:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{name} is {given!r}, expected a mapping")


def no_policies(name: str, given: Any) -> None:
    for text in texts(given):
        if text.startswith("@"):
            raise ValueError(f"{name} has {text!r}, expected a rule: a policy may not name another")


def rules(name: str, given: Any) -> None:
    """Refuses what is surely no rule."""
    texts_of_rules(name, given)
    for text in texts(given):
        if not RULE.fullmatch(text):
            raise ValueError(f"{name} has {text!r}, expected [algorithm:]limit/period[,option=value...]")


def _error(is_of_its_type: bool) -> type[ValueError] | type[TypeError]:
    return ValueError if is_of_its_type else TypeError
