"""The words of each command, and what makes an answer of its reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ._replies import Reply, Report, to_reply, to_report

#: Rules as a text each, `["5/15m", "20/h"]`, or a policy, `"@free"`.
Rules = str | Sequence[str]

#: Units that a check consumes. A pair, `(1, 100)`, takes as much as passes.
Cost = int | tuple[int, int]

Answer = TypeVar("Answer")


class Limit(NamedTuple):
    """A key, and the rules that it must keep to."""

    key: str
    rules: Rules


class Command(NamedTuple, Generic[Answer]):
    words: tuple[str | int, ...]
    answer: Callable[[Any], Answer]


def check(key: str, rules: Rules, cost: Cost, meta: str | None) -> Command[Reply]:
    return Command(("RL.CHECK", key, *_cost(cost), *_meta(meta), *_texts(rules)), to_reply)


def peek(key: str, rules: Rules, cost: Cost) -> Command[Reply]:
    return Command(("RL.PEEK", key, *_cost(cost), *_texts(rules)), to_reply)


def check_all(limits: Sequence[Limit], cost: Cost, meta: str | None) -> Command[Report]:
    if len(limits) == 1:
        [(key, rules)] = limits
        return Command(("RL.CHECK", key, *_cost(cost), *_meta(meta), "FULL", *_texts(rules)), to_report)
    keys = [limit.key for limit in limits]
    groups = [word for limit in limits for word in ("NEXT", *_texts(limit.rules))][1:]
    return Command(("RL.MCHECK", len(keys), *keys, *_cost(cost), *_meta(meta), "FULL", *groups), to_report)


def peek_all(key: str, rules: Rules) -> Command[Report]:
    return Command(("RL.PEEK", key, "FULL", *_texts(rules)), to_report)


def refund(key: str, units: int, rules: Rules) -> Command[int]:
    return Command(("RL.REFUND", key, units, *_texts(rules)), int)


def reset(key: str) -> Command[bool]:
    return Command(("RL.RESET", key), bool)


def call(name: str, key: str, *words: str | int) -> Command[Any]:
    return Command((name, key, *words), lambda reply: reply)


def _texts(rules: Rules) -> Sequence[str]:
    return [rules] if isinstance(rules, str) else rules


def _cost(cost: Cost) -> tuple[str | int, ...]:
    if cost == 1:
        return ()
    return ("COST", cost if isinstance(cost, int) else f"{cost[0]}..{cost[1]}")


def _meta(meta: str | None) -> tuple[str, ...]:
    return () if meta is None else ("META", meta)
