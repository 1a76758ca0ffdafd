"""What the server replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: `limited`: by a rule. `blocked`: by an operator, or by the `ban=` of a rule.
Verdict = Literal["allowed", "limited", "blocked"]

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
    """What a range of costs was granted."""


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
    key: str | None = None
    """The key that the rule belongs to, in a check of several keys."""


@dataclass(frozen=True, slots=True)
class Report(Decision):
    """What a check with `FULL` replies: the numbers of each rule."""

    verdict: Verdict
    wait_ms: int
    rules: tuple[RuleReport, ...]
    key: str | None = None
    """The key that decides, in a check of several keys."""
    granted: int | None = None


def to_reply(numbers: Sequence[Any]) -> Reply:
    return Reply(VERDICTS[int(numbers[0])], *map(int, numbers[1:]))


def to_report(sent: Any) -> Report:
    fields = record(sent)
    rules = tuple(_rule(record(rule)) for rule in fields["rules"])
    return Report(VERDICTS[fields["verdict"]], fields["wait_ms"], rules, fields.get("key"), fields.get("granted"))


def _rule(fields: dict[str, Any]) -> RuleReport:
    verdict, shadow = fields.pop("verdict"), fields.pop("shadow")
    known = {name: value for name, value in fields.items() if name in RuleReport.__slots__}
    return RuleReport(**known, denies=verdict != 0, shadow=shadow != 0)


def record(sent: Any) -> dict[str, Any]:
    """A map, as RESP3 has it, or as RESP2 has it: a flat list of names and values. Texts may be bytes."""
    pairs = sent.items() if isinstance(sent, Mapping) else zip(sent[::2], sent[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
