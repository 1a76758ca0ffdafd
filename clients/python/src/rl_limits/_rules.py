"""The text of a rule, for what decides without the module: the estimate of this process, and the script."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ._commands import Cost

RULE = re.compile(r"(?:(log|window|fixed|bucket|leaky|slots):)?(\d+)(?:/(\d*)([a-z]+))?((?:,[^,]+)*)")
DAY_MS = 86_400_000
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}


@dataclass(frozen=True, slots=True)
class Rule:
    text: str
    algorithm: str
    limit: int
    """The most at once."""
    quota: int
    period_ms: int
    name: str | None
    cost: int | None
    shadow: bool

    def own_cost(self, cost: Cost) -> int | None:
        """What a check costs this rule by its name, else by its text; `None` if it takes the default cost."""
        named = cost.get(self.name) if isinstance(cost, Mapping) and self.name else None
        return self.cost if named is None else named

    def charge(self, cost: Cost, ranged: int) -> int:
        """What a check costs this rule, if a range is granted `ranged`."""
        own = self.own_cost(cost)
        if own is not None:
            return own
        return cost if isinstance(cost, int) else ranged if isinstance(cost, tuple) else cost.get("", 1)


@functools.lru_cache(1024)
def read(text: str, processes: int = 1) -> Rule:
    """A rule of one of several processes. A text that cannot be read is an error, as on the server."""
    found = RULE.fullmatch(text)
    if not found:
        raise unreadable(text)
    options = dict(option.partition("=")[::2] for option in found[5].split(",")[1:])
    algorithm = found[1] or "log"
    period_ms = int(found[3] or 1) * _unit_ms(found[4]) if found[4] else 0
    if (algorithm == "slots") == (period_ms > 0):
        raise unreadable(text)
    quota = _share(int(found[2]), processes)
    limit = _share(int(options["burst"]), processes) if "burst" in options and quota else quota
    cost = int(options["cost"]) if "cost" in options else None
    return Rule(text, algorithm, limit, quota, period_ms, options.get("name"), cost, "shadow" in options)


def unreadable(text: str) -> ValueError:
    return ValueError(f"the rule {text!r} cannot be read")


def _share(limit: int, processes: int) -> int:
    return limit and max(1, limit // processes)


def _unit_ms(unit: str) -> int:
    if unit in ("ms", "month"):
        return 1 if unit == "ms" else 31 * DAY_MS
    return UNITS_MS.get(WORDS.get(unit.removesuffix("s") if len(unit) > 1 else unit, unit), 0)
