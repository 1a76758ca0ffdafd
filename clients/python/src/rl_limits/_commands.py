"""The words of each command."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Required, TypedDict
from uuid import uuid4

#: One text for each rule, `["5/15m", "20/h"]`, a policy, `"@free"`, or the policy of the key's plan, `"@plan:free"`.
Rules = str | Sequence[str]
PLAN = "@plan:"

#: Units that a check consumes. A pair, `(1, 100)`, takes as much as passes. A mapping, `{"in": 3000, "out": 1000}`, has
#: the costs of rules by their names, and under `""` the cost of all others.
Cost = int | tuple[int, int] | Mapping[str, int]

Words = tuple[str | int, ...]

#: The longest period and the longest life of a hold: 366 days.
LONGEST_S = 366 * 86_400


def to_ms(s: float) -> int:
    """Whole milliseconds, rounded up, without the error of floats: 0.07 s are 70 ms. The time must have been tested."""
    return math.ceil(round(s * 1000, 6))


class Limit(NamedTuple):
    """A key, and the rules that apply to it."""

    key: str
    rules: Rules


class Held(NamedTuple):
    """The hold that a check takes. It ends by `RL.SETTLE`, or after its time."""

    id: str
    ttl_ms: int
    refund: bool = False
    """Whether the units come back if nobody settles."""

    @classmethod
    def new(cls, ttl_ms: int, refund: bool = False) -> Held:
        return cls(uuid4().hex, ttl_ms, refund)


class Line(TypedDict, total=False):
    """Where to wait in line."""

    flow: str | None
    weight: int
    priority: int


class Holding(Line, total=False):
    """How to hold."""

    ttl: Required[float]
    cost: Cost
    refund: bool
    id: str | None
    wait: float | None


class Turn(NamedTuple):
    """How long to wait in line, and where."""

    wait_s: float | None
    flow: str | None = None
    weight: int = 1
    priority: int = 0

    def command(self, key: str) -> Words:
        wait: Words = ("RL.CHECK", key) if self.wait_s is None else ("RL.WAIT", key, to_ms(self.wait_s))
        flow = () if self.flow is None else ("FLOW", self.flow)
        weight = () if self.weight == 1 else ("WEIGHT", self.weight)
        return (*wait, *flow, *weight, *(("PRIORITY", self.priority) if self.priority else ()))


class Question(NamedTuple):
    """What a check asks the server, or the limiter that stands in for it."""

    limits: Sequence[Limit]
    cost: Cost = 1
    held: Held | None = None
    consumes: bool = True


class Command(NamedTuple):
    words: Words
    read: Callable[[Any], Any]
    """Reads the reply, or raises `UnreadableReply`."""
    again: bool = False
    """Whether it may be sent twice with no other effect."""
    wait_s: float | None = None
    """`RL.WAIT`: how long the server may take. Such a command needs a connection that nobody else uses."""


def check(key: str, rules: Rules, cost: Cost, meta: str | None) -> Words:
    return ("RL.CHECK", key, *costs(cost), *_meta(meta), *texts(rules))


def peek(key: str, rules: Rules, cost: Cost) -> Words:
    return ("RL.PEEK", key, *costs(cost), *texts(rules))


def wait(key: str, rules: Rules, turn: Turn, cost: Cost, meta: str | None) -> Words:
    return (*turn.command(key), *costs(cost), *_meta(meta), *texts(rules))


def check_all(limits: Sequence[Limit], cost: Cost, meta: str | None, held: Held | None = None) -> Words:
    options: Words = (*costs(cost), *_meta(meta), *_hold(held), "FULL")
    if len(limits) == 1:
        [(key, rules)] = limits
        return ("RL.CHECK", key, *options, *texts(rules))
    return ("RL.MCHECK", *_keys(limits), *options, *_groups(limits))


def check_any(limits: Sequence[Limit], cost: Cost, meta: str | None, most: bool) -> Words:
    options: Words = ("ANY", *(("MOST",) if most else ()), *costs(cost), *_meta(meta), "FULL")
    return ("RL.MCHECK", *_keys(limits), *options, *_groups(limits))


def hold(key: str, rules: Rules, cost: Cost, held: Held, turn: Turn) -> Words:
    return (*turn.command(key), *costs(cost), *_hold(held), "FULL", *texts(rules))


def peek_all(key: str, rules: Rules) -> Words:
    return ("RL.PEEK", key, "FULL", *texts(rules))


def settle(key: str, id: str, cost: Cost | None, refund: bool) -> Words:
    # `COST 1` must be sent, although 1 is the default cost.
    real = ("REFUND",) if refund else () if cost is None else ("COST", 1) if cost == 1 else costs(cost)
    return ("RL.SETTLE", key, id, *real)


def renew(key: str, id: str, ttl_ms: int) -> Words:
    return ("RL.RENEW", key, id, "PX", ttl_ms)


def refund(key: str, units: int, rules: Rules) -> Words:
    return ("RL.REFUND", key, units, *texts(rules))


def pause(key: str, ms: int, reason: str | None) -> Words:
    return ("RL.PAUSE", key, "PX", ms, *(() if reason is None else ("REASON", reason)))


def plan(key: str, policy: str, ms: int | None) -> Words:
    return ("RL.PLAN", key, policy, *(() if ms is None else ("PX", ms)))


def sync(key: str, remaining: int, rule: str) -> Words:
    return ("RL.SYNC", key, "REMAINING", remaining, rule)


def texts(rules: Rules) -> Sequence[str]:
    return (rules,) if isinstance(rules, str) else rules


def follow_a_plan(rules: Rules) -> bool:
    return any(rule.startswith(PLAN) for rule in texts(rules))


def costs(cost: Cost) -> Words:
    if isinstance(cost, int):
        return () if cost == 1 else ("COST", cost)
    if isinstance(cost, tuple):
        return ("COST", f"{cost[0]}..{cost[1]}")
    return tuple(word for name, n in cost.items() for word in ("COST", f"{name}={n}" if name else n))


def costs_apart(cost: Cost, limits: Sequence[Limit]) -> list[Cost]:
    """The cost for each of several keys that are checked one by one. The server refuses a name that no rule of the key
    has, so each key gets only the names of its own rules. A key with a policy gets all names, since only the server
    knows the policy's rules. A name that fits no key goes to all keys, so that the server refuses it."""
    if isinstance(cost, int):
        return [cost] * len(limits)
    if isinstance(cost, tuple):
        raise ValueError("a range of costs needs one decision over all keys: separately=False")

    def takes(name: str, limit: Limit) -> bool:
        return any(rule.startswith("@") or f"name={name}" in rule.split(",") for rule in texts(limit.rules))

    everywhere = {name for name in cost if not name or not any(takes(name, limit) for limit in limits)}
    return [{name: n for name, n in cost.items() if name in everywhere or takes(name, limit)} for limit in limits]


def _keys(limits: Sequence[Limit]) -> Words:
    return (len(limits), *(limit.key for limit in limits))


def _groups(limits: Sequence[Limit]) -> Words:
    return tuple(word for limit in limits for word in ("NEXT", *texts(limit.rules)))[1:]


def _hold(held: Held | None) -> Words:
    return () if held is None else ("HOLD", held.id, "PX", held.ttl_ms, *(("REFUND",) if held.refund else ()))


def _meta(meta: str | None) -> tuple[str, ...]:
    return () if meta is None else ("META", meta)
