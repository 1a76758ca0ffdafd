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

import contextlib
import functools
import itertools
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ._commands import Cost, Limit, Question, Rules, texts
from ._replies import Report, RuleReport

#: The most keys to keep; a new key evicts the least recently used.
MOST_KEYS = 10_000
#: The most holds of a key, as on the server.
MOST_HOLDS = 10_000
#: Less than any unit: what rounding leaves of used units.
ERROR = 1e-9

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
    limit = _part(int(options["burst"]), processes) if "burst" in options and quota else quota
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
    opened_ms = -math.inf
    """When it last began to count from nothing."""

    def used_at(self, rule: Rule, now_ms: float) -> float:
        """The units that still count. Slots count until their holds end."""
        return self.used

    def pass_time(self, rule: Rule, now_ms: float) -> None:
        """Forgets what no longer counts."""
        self.used = self.used_at(rule, now_ms)

    def take(self, rule: Rule, now_ms: float, units: float) -> float:
        """Adds units, and returns how many."""
        self.pass_time(rule, now_ms)
        if not self.used:
            self.opened_ms = now_ms
        self.used += units
        return units

    def mark(self, now_ms: float) -> float:
        """What a charge of now remembers, for `give_back`."""
        return now_ms

    def give_back(self, charge: Charge, units: float, later: Iterable[Charge]) -> None:
        """Takes units of a charge off, as far as they still count. `later` has this charge and those after it."""
        if charge.mark >= self.opened_ms:
            self.used = max(0, self.used - units)

    def free_at_ms(self, rule: Rule, now_ms: float, over: float, ends: Iterable[tuple[float, int]]) -> float:
        """When `over` of the used units no longer count. `ends` has what holds use, ordered by their ends."""
        for ends_ms, units in ends:
            over -= units
            if over <= 0:
                return ends_ms
        return math.inf


class Bucket(State):
    _at_ms = 0.0
    _drained = 0.0
    """The units that have ever drained."""

    def used_at(self, rule: Rule, now_ms: float) -> float:
        used = self.used - (now_ms - self._at_ms) * rule.quota / rule.period_ms
        return used if used > ERROR else 0

    def pass_time(self, rule: Rule, now_ms: float) -> None:
        before = self.used
        super().pass_time(rule, now_ms)
        self._at_ms = now_ms
        self._drained += before - self.used

    def take(self, rule: Rule, now_ms: float, units: float) -> float:
        """On trial a bucket fills no further than its burst."""
        free = max(0, rule.limit - self.used_at(rule, now_ms)) if rule.shadow else math.inf
        return super().take(rule, now_ms, min(units, free))

    def mark(self, now_ms: float) -> float:
        return self.used + self._drained

    def give_back(self, charge: Charge, units: float, later: Iterable[Charge]) -> None:
        # All that has drained since counts as drained from what was owed then. In a bucket that was never empty
        # meanwhile, the server gives back more.
        given = max(0, min(units, self.used, charge.mark - self._drained))
        self.used -= given
        for other in later if given else ():
            other.mark -= given

    def free_at_ms(self, rule: Rule, now_ms: float, over: float, ends: Iterable[tuple[float, int]]) -> float:
        return now_ms + over * rule.period_ms / rule.quota if rule.quota else math.inf


class Window(State):
    _period_ms = 0

    def used_at(self, rule: Rule, now_ms: float) -> float:
        return self.used if now_ms < self.opened_ms + rule.period_ms else 0

    def take(self, rule: Rule, now_ms: float, units: float) -> float:
        self._period_ms = rule.period_ms
        return super().take(rule, now_ms, units)

    def free_at_ms(self, rule: Rule, now_ms: float, over: float, ends: Iterable[tuple[float, int]]) -> float:
        return self.opened_ms + rule.period_ms

    def counted(self, now_ms: float) -> tuple[int, float]:
        ends_ms = self.opened_ms + self._period_ms
        return (int(self.used), ends_ms - now_ms) if now_ms < ends_ms else (0, 0.0)


KINDS = {"bucket": Bucket, "leaky": Bucket, "window": Window, "slots": State}


@dataclass(slots=True, eq=False)
class Charge:
    rule: Rule
    state: State
    units: int
    by_default: bool
    """Whether the rule took the default cost, which a settlement may replace."""
    mark: float

    def settled(self, cost: Cost) -> int:
        named = cost if isinstance(cost, Mapping) else {"": cost if isinstance(cost, int) else self.units}
        if self.rule.name and self.rule.name in named:
            return named[self.rule.name]
        return named.get("", self.units) if self.by_default else self.units


class Hold(NamedTuple):
    ends_ms: float
    refund: bool
    charges: list[Charge]

    @property
    def granted(self) -> int | None:
        """The default cost that it took; `None` if each rule had its own."""
        return next((charge.units for charge in self.charges if charge.by_default and not charge.rule.shadow), None)


class Key:
    """All that is counted under one key."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str | int], State] = {}
        self.holds: dict[str, Hold] = {}
        """In the order in which they were taken."""

    def state(self, rule: Rule) -> State:
        return self.states.setdefault(rule.identity, KINDS[rule.kind]())

    def lapse(self, now_ms: float) -> None:
        lapsed = [(hold.ends_ms, id) for id, hold in self.holds.items() if now_ms >= hold.ends_ms]
        for ends_ms, id in sorted(lapsed):
            self.settle(id, None, self.holds[id].refund, ends_ms)

    def settle(self, id: str, cost: Cost | None, refund: bool, now_ms: float) -> None:
        for charge in self.holds[id].charges:
            rule, state, units = charge.rule, charge.state, charge.units
            state.pass_time(rule, now_ms)
            real = units if cost is None else charge.settled(cost)
            if refund or rule.kind == "slots":
                real = 0
            if real > units:
                state.take(rule, now_ms, real - units)
            else:
                state.give_back(charge, units - real, self._from(charge))
        del self.holds[id]

    def _from(self, charge: Charge) -> Iterator[Charge]:
        """This charge and those after it of the same state."""
        charges = (other for _, other in self._charges(charge.state))
        return itertools.dropwhile(lambda other: other is not charge, charges)

    def _charges(self, state: State) -> Iterator[tuple[Hold, Charge]]:
        for hold in self.holds.values():
            for charge in hold.charges:
                if charge.state is state:
                    yield hold, charge

    def ends(self, state: State) -> list[tuple[float, int]]:
        """When holds end, in order, and what they use of a state."""
        return sorted((hold.ends_ms, charge.units) for hold, charge in self._charges(state) if charge.units)

    def until(self, rule: Rule, state: State, over: float, now_ms: float) -> int:
        """How long `over` of the used units still count; -1 for ever."""
        if over <= ERROR:
            return 0
        ends = self.ends(state) if rule.kind == "slots" else ()
        at_ms = state.free_at_ms(rule, now_ms, over, ends)
        # A rounding error is no millisecond.
        return -1 if at_ms == math.inf else max(1, math.ceil(at_ms - now_ms - 1e-6))


class Asked(NamedTuple):
    """A rule of a check, before the check."""

    limit: Limit
    rule: Rule
    state: State
    units: int
    wait_ms: int

    @property
    def denies(self) -> bool:
        return self.wait_ms != 0


class LocalLimiter:
    def __init__(self, processes: int, policies: Mapping[str, Rules]) -> None:
        self.processes = processes
        self.policies = policies
        self._keys: OrderedDict[str, Key] = OrderedDict()
        self._paused_until_ms: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()
        self._now_ms = -math.inf

    @contextlib.contextmanager
    def _at(self, now_ms: float) -> Iterator[float]:
        """Locks. A thread that read the clock before another, and got the lock after it, has the time of the other."""
        with self._lock:
            self._now_ms = max(self._now_ms, now_ms)
            yield self._now_ms

    def decide(self, question: Question, now_ms: float) -> Report:
        with self._at(now_ms) as now_ms:
            return self._decide(question, now_ms)

    def settle(self, key: str, id: str, cost: Cost | None, refund: bool, now_ms: float) -> bool:
        with self._at(now_ms) as now_ms:
            found = self._holding(key, id, now_ms)
            if found:
                found.settle(id, cost, refund, now_ms)
            return found is not None

    def renew(self, key: str, id: str, ttl_ms: int, now_ms: float) -> bool:
        with self._at(now_ms) as now_ms:
            found = self._holding(key, id, now_ms)
            if found:
                found.holds[id] = found.holds[id]._replace(ends_ms=now_ms + ttl_ms)
            return found is not None

    def _holding(self, key: str, id: str, now_ms: float) -> Key | None:
        found = self._key(key, now_ms) if key in self._keys else None
        return found if found and id in found.holds else None

    def reset(self, key: str) -> None:
        with self._lock:
            if key in self._keys:
                self._keys[key].states.clear()
                self._keys[key].holds.clear()

    def pause(self, key: str, ms: int, now_ms: float) -> int:
        """The milliseconds that are left: of two pauses the later end stands."""
        with self._at(now_ms) as now_ms:
            until_ms = max(self._paused_until_ms.pop(key, -math.inf), now_ms + ms)
            self._paused_until_ms[key] = until_ms
            if len(self._paused_until_ms) > MOST_KEYS:
                self._paused_until_ms.popitem(last=False)
            return math.ceil(until_ms - now_ms)

    def resume(self, key: str) -> None:
        with self._lock:
            self._paused_until_ms.pop(key, None)

    def counted(self, key: str, now_ms: float) -> tuple[int, float]:
        """The units of a key's first window, and how long it still lasts."""
        with self._lock:
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
        keys = {limit.key: self._key(limit.key, now_ms, question.consumes) for limit in question.limits}
        plan = [
            (limit, rule, keys[limit.key].state(rule)) for limit in question.limits for rule in self._rules(limit.rules)
        ]
        held = question.held
        repeated = {name for name, key in keys.items() if held and held.id in key.holds}
        if held and any(len(key.holds) >= MOST_HOLDS for name, key in keys.items() if name not in repeated):
            raise ValueError(f"too many holds of a key, expected at most {MOST_HOLDS}")

        def asked(limit: Limit, rule: Rule, state: State, ranged: int) -> Asked:
            units = 0 if limit.key in repeated else _cost(rule, question.cost, ranged)
            if limit.key in repeated or not (units or rule.limit):
                return Asked(limit, rule, state, units, 0)
            most = rule.most(units)
            over = state.used_at(rule, now_ms) + units - most
            wait_ms = -1 if units > most else keys[limit.key].until(rule, state, over, now_ms)
            return Asked(limit, rule, state, units, wait_ms)

        least, most = question.cost if isinstance(question.cost, tuple) else (0, 0)
        asking = [asked(*each, least) for each in plan]
        paused_until_ms = [self._paused_until_ms.get(name, now_ms) for name in keys if name not in repeated]
        paused_ms = math.ceil(max([now_ms, *paused_until_ms]) - now_ms)
        waits = [ask for ask in asking if ask.denies and not ask.rule.shadow]
        passes = not paused_ms and not waits
        granted = None
        if isinstance(question.cost, tuple):
            first = [(rule, state.used_at(rule, now_ms)) for limit, rule, state in plan if limit.key not in repeated]
            again = [keys[name].holds[held.id] for name in repeated] if held else []
            granted = _granted(least, most, first, again) if passes else 0
            asking = [asked(*each, granted or least) for each in plan]
        if passes and question.consumes:
            for name, key in keys.items():
                self._take(key, question, name in repeated, [ask for ask in asking if ask.limit.key == name], now_ms)
        last = max(waits, key=lambda ask: math.inf if ask.wait_ms < 0 else ask.wait_ms, default=None)
        return Report(
            "allowed" if passes else "limited",
            last.wait_ms if last and not 0 <= last.wait_ms < paused_ms else paused_ms,
            tuple(_report(ask, keys[ask.limit.key], now_ms) for ask in asking),
            last.limit.key if last else question.limits[0].key,
            granted,
            "local",
        )

    def _take(self, key: Key, question: Question, repeated: bool, asking: list[Asked], now_ms: float) -> None:
        """Consumes what was asked, and takes the hold; a repeated hold only lasts longer."""
        held = question.held
        if held and repeated:
            key.holds[held.id] = key.holds[held.id]._replace(ends_ms=now_ms + held.ttl_ms)
            return
        charges = []
        for _, rule, state, units, _ in asking:
            if rule.kind != "slots" or held:
                taken = state.take(rule, now_ms, units)
                by_default = _own_cost(rule, question.cost) is None
                charges.append(Charge(rule, state, int(taken), by_default, state.mark(now_ms)))
        if held:
            key.holds[held.id] = Hold(now_ms + held.ttl_ms, held.refund, charges)

    def _key(self, name: str, now_ms: float, keeps: bool = True) -> Key:
        """The key of this name, used now. A peek keeps no new key."""
        key = self._keys.get(name, Key())
        if keeps or name in self._keys:
            self._keys[name] = key
            self._keys.move_to_end(name)
        if len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
        key.lapse(now_ms)
        return key


def _own_cost(rule: Rule, cost: Cost) -> int | None:
    """What a check costs this rule by its name, else by its text; `None` if it takes the default cost."""
    named = cost.get(rule.name) if isinstance(cost, Mapping) and rule.name else None
    return rule.cost if named is None else named


def _cost(rule: Rule, cost: Cost, ranged: int) -> int:
    own = _own_cost(rule, cost)
    if own is not None:
        return own
    return cost if isinstance(cost, int) else ranged if isinstance(cost, tuple) else cost.get("", 1)


def _granted(least: int, most: int, first: list[tuple[Rule, float]], again: list[Hold]) -> int:
    """The most of a range that each rule has left, and that each repeated hold has."""
    left = [_left(rule, used) for rule, used in first if rule.cost is None and not rule.shadow]
    held = [hold.granted for hold in again if hold.granted is not None]
    return max(least, min([most, *left, *held]))


def _left(rule: Rule, used: float) -> int:
    return int(rule.limit - used + ERROR)


def _report(ask: Asked, key: Key, now_ms: float) -> RuleReport:
    limit, rule, state, units, wait_ms = ask
    used = state.used_at(rule, now_ms)
    remaining = max(0, _left(rule, used))
    one_more = used + remaining + 1 - rule.limit if used else 0
    return RuleReport(
        rule=rule.text,
        name=rule.name,
        cost=units,
        denies=ask.denies,
        shadow=rule.shadow,
        limit=rule.limit,
        quota=rule.quota,
        period_ms=rule.period_ms,
        remaining=remaining,
        wait_ms=wait_ms,
        next_ms=key.until(rule, state, one_more, now_ms) if rule.limit else -1,
        reset_ms=key.until(rule, state, used, now_ms),
        key=limit.key,
    )
