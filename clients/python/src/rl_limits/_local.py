"""An estimate in this process, which stands in for a server that is away.

Each process has its share of a limit, at least one unit. It promises three things for the keys that it still counts:
never more than the share at once, never more than twice that in a period, and a wait after which the request passes if
nobody else asks.

| rules                    | counted by                                     |
|--------------------------|------------------------------------------------|
| `log`, `window`, `fixed` | a window that begins with its first request    |
| `bucket`, `leaky`        | a token bucket, whose size is the burst        |
| `slots`                  | the holds in force                             |
| `@name`, `@plan:name`    | the rules given for this name, else no limit   |

`shadow` rules never deny; blocks, bans and other processes' pauses are not known.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ._commands import Cost, Limit, Question, Rules, texts
from ._replies import Report, RuleReport
from ._rules import Rule, read

#: The most keys to keep; a new key evicts the least recently used.
MOST_KEYS = 10_000
#: Less than any unit: what rounding leaves of used units.
ERROR = 1e-9


class Counter:
    """What one rule has counted for one key."""

    used = 0.0
    #: A window's begin, or the time up to which a bucket has drained.
    at_ms = -math.inf

    def advance(self, rule: Rule, now_ms: float) -> None:
        """Forgets what no longer counts."""
        if rule.algorithm in ("bucket", "leaky"):
            drained = (now_ms - self.at_ms) * rule.quota / rule.period_ms if self.used else 0
            self.used = max(0.0, self.used - drained)
            self.used = self.used if self.used > ERROR else 0
            self.at_ms = now_ms
        elif rule.period_ms and (not self.used or now_ms >= self.at_ms + rule.period_ms):
            self.used, self.at_ms = 0, now_ms


class Hold(NamedTuple):
    ends_ms: float
    refund: bool
    #: Each rule, its counter, its units, and the window in which they were counted.
    charges: list[tuple[Rule, Counter, int, float]]


@dataclass(slots=True)
class Key:
    """All that is counted under one key."""

    counters: dict[str, Counter] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    paused_until_ms: float = 0.0

    def end(self, id: str, cost: Cost | None, refund: bool, now_ms: float) -> None:
        """Settles a hold. Units come back within the same window."""
        for rule, counter, units, at_ms in self.holds.pop(id).charges:
            counter.advance(rule, now_ms)
            settled = {"": units, **cost} if isinstance(cost, Mapping) else cost
            real = units if settled is None else rule.charge(settled, units)
            back = units if refund or rule.algorithm == "slots" else units - real
            if rule.algorithm not in ("log", "window", "fixed") or counter.at_ms == at_ms:
                counter.used = max(0.0, counter.used - back)

    def free_ms(self, rule: Rule, counter: Counter, over: float, now_ms: float) -> int:
        """How long `over` of the used units still count; -1 for ever."""
        if over <= ERROR:
            return 0
        at_ms = counter.at_ms + rule.period_ms
        if rule.algorithm == "slots":
            at_ms = self._ends_ms(counter, over)
        elif rule.algorithm in ("bucket", "leaky"):
            at_ms = now_ms + over * rule.period_ms / rule.quota if rule.quota else math.inf
        return -1 if at_ms == math.inf else max(1, math.ceil(at_ms - now_ms - 1e-6))

    def _ends_ms(self, counter: Counter, over: float) -> float:
        """When holds that use `over` slots have ended."""
        used = [(hold.ends_ms, c[2]) for hold in self.holds.values() for c in hold.charges if c[1] is counter]
        for ends_ms, units in sorted(used):
            over -= units
            if over <= ERROR:
                return ends_ms
        return math.inf


class Asked(NamedTuple):
    """A rule of a check, before the check."""

    limit: Limit
    key: Key
    rule: Rule
    counter: Counter
    units: int
    wait_ms: int


class Estimate:
    def __init__(self, processes: int, policies: Mapping[str, Rules]) -> None:
        self.processes = processes
        self.policies = policies
        self._keys: OrderedDict[str, Key] = OrderedDict()
        self.renew_lock()

    def renew_lock(self) -> None:
        self._lock = threading.Lock()

    def decide(self, question: Question) -> Report:
        with self._lock:
            return self._decide(question, _now_ms())

    def settle(self, key: str, id: str, cost: Cost | None, refund: bool) -> bool:
        with self._lock:
            found = self._holding(key, id)
            if found:
                found.end(id, cost, refund, _now_ms())
            return found is not None

    def renew(self, key: str, id: str, ttl_ms: int) -> bool:
        with self._lock:
            found = self._holding(key, id)
            if found:
                found.holds[id] = found.holds[id]._replace(ends_ms=_now_ms() + ttl_ms)
            return found is not None

    def refund(self, key: str, units: int, rules: Rules) -> int:
        """Gives units back. Returns the largest number that one counter got."""
        with self._lock:
            found, most = self._keys.get(key, Key()), 0
            wanted = {rule.text: rule for rule in self._rules(rules)} or {text: read(text) for text in found.counters}
            for text, rule in wanted.items():
                if counter := found.counters.get(text):
                    counter.advance(rule, _now_ms())
                    back = min(units, math.ceil(counter.used - ERROR))
                    counter.used = max(0.0, counter.used - back)
                    most = max(most, back)
            return most

    def reset(self, key: str) -> bool:
        with self._lock:
            found = self._keys.get(key)
            if found:
                self._keys[key] = Key(paused_until_ms=found.paused_until_ms)
            return found is not None and bool(found.counters)

    def pause(self, key: str, ms: int) -> int:
        """The milliseconds that are left: of two pauses the later end stands."""
        with self._lock:
            now_ms = _now_ms()
            found = self._key(key, now_ms)
            found.paused_until_ms = max(found.paused_until_ms, now_ms + ms)
            return math.ceil(found.paused_until_ms - now_ms)

    def resume(self, key: str) -> bool:
        with self._lock:
            found = self._keys.get(key)
            was_paused = found is not None and found.paused_until_ms > _now_ms()
            if found:
                found.paused_until_ms = 0.0
            return was_paused

    def counted(self, key: str) -> tuple[int, float]:
        """The units of a key's first fixed window, and the milliseconds that it still lasts."""
        with self._lock:
            for text, counter in self._keys.get(key, Key()).counters.items():
                rule = read(text, self.processes)
                if rule.algorithm == "fixed":
                    counter.advance(rule, _now_ms())
                    return int(counter.used), max(0.0, counter.at_ms + rule.period_ms - _now_ms())
            return 0, 0.0

    def _holding(self, key: str, id: str) -> Key | None:
        found = self._key(key, _now_ms()) if key in self._keys else None
        return found if found and id in found.holds else None

    def _rules(self, rules: Rules) -> Iterator[Rule]:
        for text in texts(rules):
            if text.startswith("@"):
                yield from self._rules(self.policies.get(text[1:].removeprefix("plan:"), ()))
            else:
                yield read(text, self.processes)

    def _key(self, name: str, now_ms: float, keeps: bool = True) -> Key:
        """The key of this name, used now. A peek keeps no new key."""
        key = self._keys.get(name) or Key()
        if keeps or name in self._keys:
            self._keys[name] = key
            self._keys.move_to_end(name)
        if len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
        for ends_ms, id in sorted((hold.ends_ms, id) for id, hold in key.holds.items() if now_ms >= hold.ends_ms):
            key.end(id, None, key.holds[id].refund, ends_ms)
        return key

    def _decide(self, question: Question, now_ms: float) -> Report:
        cost, held = question.cost, question.held
        keys = {limit.key: self._key(limit.key, now_ms, question.consumes) for limit in question.limits}
        again = {name for name, key in keys.items() if held and held.id in key.holds}
        plan = []
        for limit in question.limits:
            for rule in self._rules(limit.rules):
                counter = keys[limit.key].counters.setdefault(rule.text, Counter())
                counter.advance(rule, now_ms)
                plan.append((limit, keys[limit.key], rule, counter))

        def ask(ranged: int) -> list[Asked]:
            return [_asked(*each, 0 if each[0].key in again else each[2].charge(cost, ranged), now_ms) for each in plan]

        least, most = cost if isinstance(cost, tuple) else (0, 0)
        asking = ask(least)
        denying = [each for each in asking if each.wait_ms and not each.rule.shadow]
        pauses_ms = (key.paused_until_ms - now_ms for name, key in keys.items() if name not in again)
        paused_ms = math.ceil(max(pauses_ms, default=0))
        passes = paused_ms <= 0 and not denying
        granted = None
        if isinstance(cost, tuple):
            left = [_left(rule, counter) for _, _, rule, counter in plan if rule.cost is None and not rule.shadow]
            granted = max(least, min([most, *left])) if passes else 0
            asking = ask(granted or least)
        if passes and question.consumes:
            self._take(question, keys, again, asking, now_ms)
        last = max(denying, key=lambda each: math.inf if each.wait_ms < 0 else each.wait_ms, default=None)
        return Report(
            "allowed" if passes else "limited",
            last.wait_ms if last and not 0 <= last.wait_ms < paused_ms else max(0, paused_ms),
            tuple(_report(each, now_ms) for each in asking),
            last.limit.key if last else question.limits[0].key,
            granted,
            "local",
        )

    def _take(
        self, question: Question, keys: dict[str, Key], again: set[str], asking: list[Asked], now_ms: float
    ) -> None:
        """Consumes what was asked, and takes the hold; a repeated hold only lasts longer."""
        held = question.held
        for each in asking:
            if held or each.rule.algorithm != "slots":
                each.counter.used += each.units
        for name, key in keys.items() if held else ():
            assert held is not None
            charges = [(each.rule, each.counter, each.units, each.counter.at_ms) for each in asking if each.key is key]
            charges = key.holds[held.id].charges if name in again else charges
            key.holds[held.id] = Hold(now_ms + held.ttl_ms, held.refund, charges)


def _asked(limit: Limit, key: Key, rule: Rule, counter: Counter, units: int, now_ms: float) -> Asked:
    wait_ms = -1 if units > rule.limit else key.free_ms(rule, counter, counter.used + units - rule.limit, now_ms)
    return Asked(limit, key, rule, counter, units, wait_ms if units else 0)


def _left(rule: Rule, counter: Counter) -> int:
    return max(0, int(rule.limit - counter.used + ERROR))


def _report(each: Asked, now_ms: float) -> RuleReport:
    rule, counter = each.rule, each.counter
    remaining = _left(rule, counter)
    one_more = counter.used + remaining + 1 - rule.limit if counter.used else 0
    return RuleReport(
        rule=rule.text,
        name=rule.name,
        cost=each.units,
        denies=each.wait_ms != 0,
        shadow=rule.shadow,
        limit=rule.limit,
        quota=rule.quota,
        period_ms=rule.period_ms,
        remaining=remaining,
        wait_ms=each.wait_ms,
        next_ms=each.key.free_ms(rule, counter, one_more, now_ms) if rule.limit else -1,
        reset_ms=each.key.free_ms(rule, counter, counter.used, now_ms),
        key=each.limit.key,
    )


def _now_ms() -> float:
    return time.monotonic() * 1000
