"""A limiter in this process, which stands in for a server that is away. It is approximate:

| rules                   | become                                                      |
|-------------------------|-------------------------------------------------------------|
| `bucket`                | a token bucket                                              |
| `leaky`                 | a token bucket of one unit; nothing queues                  |
| `log`, `window`, `fixed`| a window that begins with its first request                 |
| `slots`                 | a count of the holds taken here                             |
| `@name`, `@plan:name`   | the rules given for this name, else no limit                |

Each process has its part of a limit, and at least 1. `shadow` rules never deny; blocks and bans are not known. All
rules of all keys consume, or none. Counts stay from one outage to the next.
"""

from __future__ import annotations

import functools
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ._commands import Cost, Limit, Question, Rules, texts
from ._replies import Report, RuleReport

#: The most keys to keep; a new key evicts the least recently used.
MOST_KEYS = 10_000

RULE = re.compile(r"(?:(log|window|fixed|bucket|leaky|slots):)?(\d+)(?:/(\d*)([a-z]+))?((?:,[^,]+)*)")
DAY_MS = 86_400_000
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}


@dataclass(frozen=True, slots=True)
class Rule:
    text: str
    kind: str
    identity: tuple[str, str | int]
    """Rules of one identity count in one state."""
    limit: int
    """The most at once."""
    quota: int
    period_ms: int
    name: str | None
    cost: int | None
    shadow: bool

    def most(self, cost: int) -> int:
        """The most at once with a request of this cost: under `leaky` any cost passes when nothing is used."""
        return max(self.limit, cost) if self.kind == "leaky" and self.quota else self.limit


@functools.lru_cache(1024)
def read(text: str, processes: int) -> Rule:
    """A rule of this process. A text that cannot be read is an error, as on the server."""
    found = RULE.fullmatch(text)
    if not found:
        raise unreadable(text)
    options = dict(option.partition("=")[::2] for option in found[5].split(",")[1:])
    quota = _part(int(found[2]), processes)
    limit = _part(int(options["burst"]), processes) if "burst" in options else quota
    algorithm = found[1] or "log"
    kind = {"log": "window", "fixed": "window"}.get(algorithm, algorithm)
    if kind == "leaky":
        limit = min(1, quota)
    period_ms = int(found[3] or 1) * _unit_ms(found[4]) if found[4] else 0
    if (kind == "slots") == (period_ms > 0):
        raise unreadable(text)
    cost = int(options["cost"]) if "cost" in options else None
    name = options.get("name")
    identity = (kind, name) if name else (algorithm, period_ms)
    return Rule(text, kind, identity, limit, quota, period_ms, name, cost, "shadow" in options)


def unreadable(text: str) -> ValueError:
    return ValueError(f"the rule {text!r} cannot be read")


def _part(limit: int, processes: int) -> int:
    return limit and max(1, limit // processes)


def _unit_ms(unit: str) -> int:
    if unit in ("ms", "month"):
        return 1 if unit == "ms" else 31 * DAY_MS
    return UNITS_MS.get(WORDS.get(unit.removesuffix("s") if len(unit) > 1 else unit, unit), 0)


class State:
    """What a rule has counted. The rule passes its limit to each call, because the limit may have changed."""

    used = 0.0

    def pass_time(self, rule: Rule, now_ms: float) -> None:
        """Forgets what no longer counts. Slots forget nothing here: they become free when their holds end."""

    def begin(self, now_ms: float) -> None:
        """Called before units are added."""

    def free_at_ms(self, rule: Rule, over: float, next_end_ms: float) -> float:
        """When `over` of the used units no longer count."""
        return next_end_ms


class Bucket(State):
    _at_ms = 0.0

    def pass_time(self, rule: Rule, now_ms: float) -> None:
        self.used = max(0.0, self.used - (now_ms - self._at_ms) * rule.quota / rule.period_ms)
        self._at_ms = now_ms

    def free_at_ms(self, rule: Rule, over: float, next_end_ms: float) -> float:
        return self._at_ms + over * rule.period_ms / rule.quota if rule.quota else math.inf


class Window(State):
    _ends_ms = 0.0
    _period_ms = 0

    def pass_time(self, rule: Rule, now_ms: float) -> None:
        self._period_ms = rule.period_ms
        if now_ms >= self._ends_ms:
            self.used = 0

    def begin(self, now_ms: float) -> None:
        if not self.used:
            self._ends_ms = now_ms + self._period_ms

    def free_at_ms(self, rule: Rule, over: float, next_end_ms: float) -> float:
        return self._ends_ms

    def counted(self, now_ms: float) -> tuple[int, float]:
        return (int(self.used), self._ends_ms - now_ms) if now_ms < self._ends_ms else (0, 0.0)


KINDS = {"bucket": Bucket, "leaky": Bucket, "window": Window, "slots": State}


class Charge(NamedTuple):
    rule: Rule
    state: State
    units: int


class Hold(NamedTuple):
    ends_ms: float
    refund: bool
    charges: list[Charge]


class Key:
    """All that is counted under one key."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str | int], State] = {}
        self.holds: dict[str, Hold] = {}
        self.paused_until_ms = -math.inf

    def state(self, rule: Rule) -> State:
        return self.states.setdefault(rule.identity, KINDS[rule.kind]())

    def lapse(self, now_ms: float) -> None:
        for id in [id for id, hold in self.holds.items() if now_ms >= hold.ends_ms]:
            self.settle(id, None, self.holds[id].refund)

    def settle(self, id: str, cost: Cost | None, refund: bool) -> None:
        for rule, state, units in self.holds.pop(id).charges:
            if rule.kind == "slots" or refund:
                state.used = max(0, state.used - units)
            elif cost is not None:
                state.used = max(0, state.used + _real_cost(rule, cost, units) - units)

    def next_end_ms(self) -> float:
        return min((hold.ends_ms for hold in self.holds.values()), default=math.inf)


class LocalLimiter:
    def __init__(self, processes: int, policies: Mapping[str, Rules]) -> None:
        self.processes = processes
        self.policies = policies
        self._keys: OrderedDict[str, Key] = OrderedDict()
        self._lock = threading.Lock()

    def decide(self, question: Question, now_ms: float) -> Report:
        with self._lock:
            return self._decide(question, now_ms)

    def settle(self, key: str, id: str, cost: Cost | None, refund: bool) -> bool:
        with self._lock:
            if not self.holds(key, id):
                return False
            self._keys[key].settle(id, cost, refund)
            return True

    def renew(self, key: str, id: str, ttl_ms: int, now_ms: float) -> bool:
        with self._lock:
            if not self.holds(key, id) or now_ms >= self._keys[key].holds[id].ends_ms:
                return False
            self._keys[key].holds[id] = self._keys[key].holds[id]._replace(ends_ms=now_ms + ttl_ms)
            return True

    def holds(self, key: str, id: str) -> bool:
        return key in self._keys and id in self._keys[key].holds

    def reset(self, key: str) -> None:
        with self._lock:
            if key in self._keys:
                self._keys[key].states.clear()
                self._keys[key].holds.clear()

    def pause(self, key: str, ms: int, now_ms: float) -> int:
        """The milliseconds that are left: of two pauses the later end stands."""
        with self._lock:
            paused = self._key(key, now_ms)
            paused.paused_until_ms = max(paused.paused_until_ms, now_ms + ms)
            return math.ceil(paused.paused_until_ms - now_ms)

    def resume(self, key: str) -> None:
        with self._lock:
            if key in self._keys:
                self._keys[key].paused_until_ms = -math.inf

    def counted(self, key: str, now_ms: float) -> tuple[int, float]:
        """The units of a key's first window, and how long it still lasts."""
        states = self._keys[key].states.values() if key in self._keys else ()
        window = next((state for state in states if isinstance(state, Window)), None)
        return window.counted(now_ms) if window else (0, 0.0)

    def _rules(self, rules: Rules) -> Iterator[Rule]:
        for text in texts(rules):
            if text.startswith("@"):
                yield from self._rules(self.policies.get(text[1:].removeprefix("plan:"), ()))
            else:
                yield read(text, self.processes)

    def _decide(self, question: Question, now_ms: float) -> Report:
        keys = {limit.key: self._key(limit.key, now_ms) for limit in question.limits}
        plan = [
            (limit, rule, keys[limit.key].state(rule)) for limit in question.limits for rule in self._rules(limit.rules)
        ]
        for _, rule, state in plan:
            state.pass_time(rule, now_ms)
        held = question.held
        again = held is not None and any(held.id in key.holds for key in keys.values())

        def least(rule: Rule) -> int:
            cost = _cost(rule, question.cost)
            return 0 if again else cost if isinstance(cost, int) else cost[0]

        paused_ms = 0 if again else math.ceil(max(0, *(key.paused_until_ms - now_ms for key in keys.values())))
        passes = not paused_ms and all(
            rule.shadow or state.used + least(rule) <= rule.most(least(rule)) for _, rule, state in plan
        )
        granted = _granted(question.cost, plan) if passes else 0
        charges: dict[str, list[Charge]] = {key: [] for key in keys}
        rules = []
        for limit, rule, state in plan:
            units = granted if passes and isinstance(_cost(rule, question.cost), tuple) else least(rule)
            next_end_ms = keys[limit.key].next_end_ms()
            takes = passes and question.consumes and (rule.kind != "slots" or held is not None)
            if takes:
                state.begin(now_ms)
            rules.append(_report(limit, rule, state, units, next_end_ms, now_ms, takes))
            if takes:
                state.used += units
                charges[limit.key].append(Charge(rule, state, units))
        if passes and held and question.consumes and not again:
            for name, key in keys.items():
                key.holds[held.id] = Hold(now_ms + held.ttl_ms, held.refund, charges[name])
        waits = [rule for rule in rules if rule.denies and not rule.shadow]
        last = max(waits, key=lambda rule: math.inf if rule.wait_ms < 0 else rule.wait_ms, default=None)
        return Report(
            "limited" if last or paused_ms else "allowed",
            last.wait_ms if last and not 0 <= last.wait_ms < paused_ms else paused_ms,
            tuple(rules),
            last.key if last else question.limits[0].key,
            granted if isinstance(question.cost, tuple) else None,
            "local",
        )

    def _key(self, name: str, now_ms: float) -> Key:
        key = self._keys.setdefault(name, Key())
        self._keys.move_to_end(name)
        if len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
        key.lapse(now_ms)
        return key


def _cost(rule: Rule, cost: Cost) -> int | tuple[int, int]:
    if isinstance(cost, Mapping) and rule.name and rule.name in cost:
        return cost[rule.name]
    if rule.cost is not None:
        return rule.cost
    return cost.get("", 1) if isinstance(cost, Mapping) else cost


def _real_cost(rule: Rule, cost: Cost, units: int) -> int:
    """What a settlement makes of the `units` that a check took."""
    named = cost if isinstance(cost, Mapping) else {"": cost if isinstance(cost, int) else units}
    if rule.name and rule.name in named:
        return named[rule.name]
    return units if rule.cost is not None else named.get("", units)


def _granted(cost: Cost, plan: list[tuple[Limit, Rule, State]]) -> int:
    if not isinstance(cost, tuple):
        return 0
    free = [int(rule.limit - state.used) for _, rule, state in plan if rule.cost is None and not rule.shadow]
    return min([cost[1], *free])


def _report(
    limit: Limit, rule: Rule, state: State, units: int, next_end_ms: float, now_ms: float, consumes: bool
) -> RuleReport:
    over = state.used + units - rule.most(units)
    denies = over > 0
    used = state.used + units if consumes and not denies else state.used
    remaining = max(0, int(rule.limit - used))

    def until(over: float) -> int:
        if over <= 0:
            return 0
        at_ms = state.free_at_ms(rule, over, next_end_ms)
        return -1 if at_ms == math.inf else max(1, math.ceil(at_ms - now_ms))

    return RuleReport(
        rule=rule.text,
        name=rule.name,
        cost=units,
        denies=denies,
        shadow=rule.shadow,
        limit=rule.limit,
        quota=rule.quota,
        period_ms=rule.period_ms,
        remaining=remaining,
        wait_ms=-1 if units > rule.most(units) else until(over),
        next_ms=until(used + remaining + 1 - rule.limit) if used > 0 else 0,
        reset_ms=until(used),
        key=limit.key,
    )
