"""Remembers denials: until the wait of a denial by a rate is over, the server would deny again.

The server would not deny if meanwhile an operator pardons the key, another process gives units back, or a limit is
raised.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Hashable, Mapping

from ._commands import Cost, Rules, texts
from ._replies import Reply, Report

#: How long to remember a denial that may end at any time: a block, a pause, a wait of -1, or one under a plan, which
#: the customer may change.
SHORT_MS = 1000


class Entry:
    """A denial. It keeps its answer for the current millisecond, because a denied key is asked for often."""

    __slots__ = ("answer", "at_ms", "key", "now", "now_until_ms", "until_ms")

    def __init__(self, answer: Reply | Report, at_ms: float, until_ms: float, key: str) -> None:
        self.answer, self.at_ms, self.until_ms, self.key = answer, at_ms, until_ms, key
        self.now, self.now_until_ms = answer, -math.inf

    def at(self, now_ms: float) -> Reply | Report:
        past_ms = int(now_ms - self.at_ms)
        self.now = answer = self.answer.later(past_ms)
        self.now_until_ms = min(self.until_ms, self.at_ms + past_ms + 1)
        return answer


class Denials:
    """At most `most` denials: a new one evicts the oldest."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._entries: dict[Hashable, Entry] = {}
        self._of_key: dict[str | int, set[Hashable]] = {}
        self.renew_lock()

    def renew_lock(self) -> None:
        self._lock = threading.Lock()

    def get(self, what: Hashable, now_ms: float) -> Reply | Report | None:
        with self._lock:
            entry = self._entries.get(what)
            if entry is None:
                return None
            if now_ms < entry.now_until_ms:
                return entry.now
            if now_ms < entry.until_ms:
                return entry.at(now_ms)
            self._drop(what)
            return None

    def keep(
        self, what: Hashable, key: str, answer: Reply | Report, now_ms: float, follows_a_plan: bool = False
    ) -> None:
        entry = Entry(answer, now_ms, now_ms + lasts_ms(answer, follows_a_plan), key)
        with self._lock:
            self._drop(what)
            while len(self._entries) >= self.most:
                self._drop(next(iter(self._entries)))
            self._entries[what] = entry
            self._of_key.setdefault(key, set()).add(what)

    def forget(self, key: str | int) -> None:
        with self._lock:
            for what in self._of_key.pop(key, ()):
                self._entries.pop(what, None)

    def _drop(self, what: Hashable) -> None:
        entry = self._entries.pop(what, None)
        if entry and (others := self._of_key.get(entry.key)):
            others.discard(what)
            if not others:
                del self._of_key[entry.key]


def lasts_ms(answer: Reply | Report, follows_a_plan: bool) -> int:
    """For how long a denial is remembered."""
    if answer.verdict == "limited" and _by_a_rate(answer) and not follows_a_plan:
        return answer.wait_ms
    return min(answer.wait_ms, SHORT_MS) if answer.wait_ms >= 0 else SHORT_MS


def _by_a_rate(answer: Reply | Report) -> bool:
    """Whether a rule, not a pause, sets the wait."""
    if isinstance(answer, Reply):
        return answer.limit > 0 and answer.wait_ms >= 0
    return any(rule.denies and rule.wait_ms == answer.wait_ms >= 0 for rule in answer.rules)


def asked(key: str, rules: Rules, cost: Cost) -> Hashable:
    return key, rules if type(rules) is str else key_of(rules), cost if type(cost) is int else hashable(cost)


def hashable(cost: Cost) -> Hashable:
    return tuple(cost.items()) if isinstance(cost, Mapping) else cost


@functools.lru_cache(1024)
def lasts(rules: str | tuple[str, ...]) -> bool:
    """Whether a denial under these rules lasts until its wait is over. It does not if denied requests count, or if a
    hold may end at any time. The rules of a policy are unknown here."""
    return not any(rule.startswith(("slots:", "@")) or "count=all" in rule or "ban=" in rule for rule in texts(rules))


def key_of(rules: Rules) -> str | tuple[str, ...]:
    return rules if isinstance(rules, str) else tuple(rules)
