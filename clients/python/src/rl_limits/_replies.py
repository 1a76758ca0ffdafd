"""What the server replies."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from . import _given as given
from ._errors import UnreadableReply

#: `limited`: by a rule. `blocked`: by an operator, or by the `ban=` of a rule.
Verdict = Literal["allowed", "limited", "blocked"]

#: Where an answer comes from. `local`: a limiter in this process. `outage`: nothing decided, the answer is that of the
#: option `outage`. `denial`: a denial of the server, remembered. `lease`: a unit that was leased ahead.
Source = Literal["server", "local", "outage", "denial", "lease"]

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
NUMBERS = ("cost", "limit", "quota", "period_ms", "remaining", *TIMES)
NUMBER = re.compile(r"-?[0-9]{1,19}")


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

    def denying(self) -> RuleReport | None:
        """The first rule that denies."""
        return next((rule for rule in self.rules if rule.denies and not rule.shadow), None)

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


def to_reply(sent: Any) -> Reply:
    """The five integers of a check."""
    try:
        verdict, limit, remaining, wait_ms, reset_ms = sent
        if not type(verdict) is type(limit) is type(remaining) is type(wait_ms) is type(reset_ms) is int:
            verdict, limit, remaining, wait_ms, reset_ms = map(whole, sent)
        return Reply(VERDICTS[verdict], limit, remaining, wait_ms, reset_ms)
    except (TypeError, ValueError, IndexError, KeyError, UnreadableReply):
        raise UnreadableReply(sent) from None


def to_granted(sent: Any) -> Reply:
    """The integers of a check with a range of costs: the last is what it was granted."""
    if not isinstance(sent, (list, tuple)) or len(sent) != 6:
        raise UnreadableReply(sent)
    return replace(to_reply(sent[:5]), granted=whole(sent[5]))


def to_report(sent: Any, key: str) -> Report:
    """`key` is the first key that was checked: the server's reply names no key if there is only one."""
    try:
        fields = record(sent)
        rules = tuple(_rule(record(rule), key) for rule in fields["rules"])
        granted = whole(fields["granted"]) if "granted" in fields else None
        decides = fields.get("key", key)
        return Report(VERDICTS[whole(fields["verdict"])], whole(fields["wait_ms"]), rules, decides, granted)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, UnreadableReply):
        raise UnreadableReply(sent) from None


def _rule(fields: dict[str, Any], key: str) -> RuleReport:
    numbers = {name: whole(fields[name]) for name in NUMBERS}
    verdict, shadow = whole(fields["verdict"]), whole(fields["shadow"])
    return RuleReport(
        rule=_text_of(fields["rule"]),
        name=fields.get("name"),
        denies=verdict != 0,
        shadow=shadow != 0,
        key=fields.get("key", key),
        **numbers,
    )


def whole(sent: Any) -> int:
    """A number, also as decimal text."""
    if type(sent) is int:
        return sent
    if isinstance(sent, (str, bytes)) and NUMBER.fullmatch(text := _text(sent)):
        return int(text)
    raise UnreadableReply(sent)


def flag(sent: Any) -> bool:
    found = whole(sent)
    if found not in (0, 1):
        raise UnreadableReply(sent)
    return found == 1


def _text_of(sent: Any) -> str:
    if not isinstance(sent, str):
        raise UnreadableReply(sent)
    return sent


def record(sent: Any) -> dict[str, Any]:
    """A map, as RESP3 has it, or as RESP2 has it: a flat list of names and values. Texts may be bytes."""
    pairs = sent.items() if isinstance(sent, Mapping) else zip(sent[::2], sent[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
