"""What the server replies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from . import _given as given

#: `limited`: by a rule. `blocked`: by an operator, or by the `ban=` of a rule.
Verdict = Literal["allowed", "limited", "blocked"]

#: Where an answer comes from. `local`: a limiter in this process. `outage`: nothing decided, the answer is that of the
#: option `outage`. `denial`: a denial of the server, remembered.
Source = Literal["server", "local", "outage", "denial"]

VERDICTS: tuple[Verdict, ...] = ("allowed", "limited", "blocked")


class Decision:
    """What all answers to a check have."""

    __slots__ = ()

    verdict: Verdict

    @property
    def allowed(self) -> bool:
        return self.verdict == "allowed"


@dataclass(frozen=True, slots=True)
class Reply(Decision):
    """What a check replies. -1 stands for "no limit" and "never", as in the server's own reply."""

    verdict: Verdict
    limit: int
    """The most that the deciding rule lets pass at once."""
    remaining: int
    """The units that the deciding rule would still allow now."""
    wait_ms: int
    """Above 0: wait, then ask again (denied) or proceed (allowed by `leaky`)."""
    reset_ms: int
    """The time until nothing counts under the deciding rule."""
    granted: int | None = None
    """The units that a range of costs was granted."""
    source: Source = "server"

    def crossed(self, fraction: float, cost: int | None = None) -> bool:
        """Whether this check brought consumption from below a fraction of the limit to at least that: `crossed(0.8)`
        for a mail at 80 %. `cost` is what the check cost the deciding rule: by default the units granted from a range,
        else 1.

        Under one `fixed` rule this is true once a window. Under other rules units come back, or another rule decides:
        it may be true twice or never. It is true again if the check repeats a hold. Do not ask it of peeks and leases.
        """
        given.fraction("the fraction", fraction)
        if not self.allowed or self.limit <= 0:
            return False
        took = cost if cost is not None else 1 if self.granted is None else self.granted
        used = self.limit - self.remaining
        return (used - took) / self.limit < fraction <= used / self.limit

    def later(self, ms: int) -> Reply:
        """This denial `ms` later, from memory."""
        wait_ms = self.wait_ms if self.wait_ms < 0 else self.wait_ms - ms
        reset_ms = self.reset_ms if self.reset_ms < 0 else max(0, self.reset_ms - ms)
        return Reply(self.verdict, self.limit, self.remaining, wait_ms, reset_ms, self.granted, "denial")


@dataclass(frozen=True, slots=True)
class RuleReport:
    """One rule of a report."""

    rule: str
    name: str | None
    cost: int
    denies: bool
    shadow: bool
    """A rule on trial: it never denies, and clients should not hear of it."""
    limit: int
    quota: int
    """What the rule allows per period."""
    period_ms: int
    """0: the rule has no period (`slots`)."""
    remaining: int
    wait_ms: int
    next_ms: int
    reset_ms: int
    key: str = ""
    """The key that the rule belongs to."""

    def later(self, ms: int) -> RuleReport:
        left = {name: max(0, old - ms) if (old := getattr(self, name)) > 0 else old for name in TIMES}
        return replace(self, **left)


TIMES = ("wait_ms", "next_ms", "reset_ms")


@dataclass(frozen=True, slots=True)
class Report(Decision):
    """What a check with `FULL` replies: the numbers of each rule."""

    verdict: Verdict
    wait_ms: int
    rules: tuple[RuleReport, ...]
    key: str = ""
    """The key that decides."""
    granted: int | None = None
    source: Source = "server"

    def later(self, ms: int) -> Report:
        """This denial `ms` later, from memory."""
        wait_ms = self.wait_ms if self.wait_ms < 0 else self.wait_ms - ms
        rules = tuple(rule.later(ms) for rule in self.rules)
        return Report(self.verdict, wait_ms, rules, self.key, self.granted, "denial")

    def deciding(self) -> RuleReport | None:
        """The rule that decides: if the check was denied, the one with the longest wait, else the one with the least
        left for its cost."""
        rules = [rule for rule in self.rules if not rule.shadow and (rule.denies or self.allowed)]
        if self.allowed:
            return min(rules, key=lambda rule: rule.remaining / rule.cost if rule.cost else math.inf, default=None)
        return max(rules, key=lambda rule: math.inf if rule.wait_ms < 0 else rule.wait_ms, default=None)

    def reply(self) -> Reply:
        """The short reply with the same decision."""
        rule = self.deciding()
        if rule is None:
            none = -1 if self.allowed else 0
            return Reply(self.verdict, none, none, self.wait_ms, self.wait_ms, self.granted, self.source)
        return Reply(self.verdict, rule.limit, rule.remaining, self.wait_ms, rule.reset_ms, self.granted, self.source)


def to_reply(numbers: Sequence[Any]) -> Reply:
    verdict, *counted = map(int, numbers)
    granted = counted[4] if len(counted) > 4 else None
    return Reply(VERDICTS[verdict], counted[0], counted[1], counted[2], counted[3], granted)


def to_report(sent: Any, key: str) -> Report:
    """`key` is the first key that was checked: the server's reply names no key if there is only one."""
    fields = record(sent)
    rules = tuple(_rule(record(rule), key) for rule in fields["rules"])
    verdict = VERDICTS[fields["verdict"]]
    return Report(verdict, fields["wait_ms"], rules, fields.get("key", key), fields.get("granted"))


def _rule(fields: dict[str, Any], key: str) -> RuleReport:
    verdict, shadow = fields.pop("verdict"), fields.pop("shadow")
    fields.setdefault("key", key)
    known = {name: value for name, value in fields.items() if name in RuleReport.__slots__}
    return RuleReport(**known, denies=verdict != 0, shadow=shadow != 0)


def record(sent: Any) -> dict[str, Any]:
    """A map, as RESP3 has it, or as RESP2 has it: a flat list of names and values. Texts may be bytes."""
    pairs = sent.items() if isinstance(sent, Mapping) else zip(sent[::2], sent[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
