"""What `RateLimiter` and `AsyncRateLimiter` have in common: everything but how a command is sent.

Each method is a generator. It yields a command, gets the server's reply or error, and returns the answer. The code that
runs it, with or without asyncio, knows neither the breaker nor the local limiter nor the remembered denials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from . import _commands as commands
from . import _given as given
from . import _script as script
from . import _upstream as upstream
from ._breaker import Breaker
from ._commands import Command, Cost, Held, Limit, Question, Rules, Turn, Words
from ._denials import Denials, asked, hashable, key_of, lasts
from ._errors import (
    LOG,
    NotAsked,
    advice,
    described,
    has_too_many_holds,
    is_answer,
    is_away,
    is_outage,
    is_refusal,
    is_undecided,
)
from ._local import LocalLimiter
from ._options import Settings
from ._replies import Reply, Report, RuleReport, to_reply, to_report

Answer = TypeVar("Answer")
Decided = TypeVar("Decided", Reply, Report)

#: The pauses before each try to give back a hold whose command got no reply: the command may reach the server late.
LATE_S = (0.0, 0.1, 1.0)
#: A settlement that does not reach the server is sent again every AGAIN_S, for at most LONGEST_S.
AGAIN_S = 1.0
LONGEST_S = 60.0

#: The time of a hold on a key that is checked separately: its charge can be given back until the last key is decided.
SEPARATE_MS = 10_000


#: The answer to a request that no rule limits.
UNLIMITED = Report("allowed", 0, (), source="local")

#: A request whose process dies would keep its slot for an hour.
SLOTS_ARE_HELD = "slots are held, ask for them with hold()"


class Pause(NamedTuple):
    """Yielded to sleep."""

    s: float


class Beside(NamedTuple):
    """Yielded to run another flow without waiting for it."""

    flow: Flow[None]


class Passed(NamedTuple):
    """A key that let a request pass, of several that are asked one after the other."""

    limit: Limit
    cost: Cost
    report: Report


Effect = Command | Pause | Beside
Flow = Generator[Effect, Any, Answer]


class Runner(Protocol):
    """Runs flows: `RateLimiter`."""

    @property
    def core(self) -> Core: ...

    def run(self, flow: Flow[Answer], pause: Callable[[float], object] = ...) -> Answer: ...


class AsyncRunner(Protocol):
    """Runs flows: `AsyncRateLimiter`."""

    @property
    def core(self) -> Core: ...

    async def run(self, flow: Flow[Answer]) -> Answer: ...

    async def finish(self, work: Coroutine[Any, Any, Answer]) -> Answer: ...

    async def take(self, taking: Flow[Report], keys: Sequence[str], id: str, *, in_line: bool = False) -> Report: ...


class Core:
    def __init__(self, chosen: Settings) -> None:
        self.mode = chosen.outage
        self.breaker = Breaker(chosen.on_outage, chosen.on_misconfigured)
        self.local = LocalLimiter(chosen.processes, chosen.policies or {})
        self.has_module = chosen.engine == "module"
        self.separately = chosen.separately or not self.has_module
        self._warn_at_s = 0.0
        #: The limiter no longer waits for the server's return.
        self.closed = False
        self.denials = Denials(chosen.remember_denials) if chosen.remember_denials else None

    def remembered(self, key: str, rules: Rules, cost: Cost) -> Reply | None:
        """A remembered denial, which needs no command."""
        if self.denials is None:
            return None
        return self.denials.get(asked(key, rules, cost), time.monotonic() * 1000)  # type: ignore[return-value]

    def need_module(self, what: str) -> None:
        """Refuses what the script cannot do."""
        if not self.has_module:
            raise script.needs_module(what)

    def test_rules(self, rules: Rules) -> None:
        for rule in () if self.has_module else commands.texts(rules):
            script.test(rule)

    def check(self, key: str, rules: Rules, cost: Cost, meta: str | None) -> Flow[Reply]:
        key = tested(key, rules, cost)
        if not rules:
            return UNLIMITED.reply()
        question, asked_ms = Question([Limit(key, rules)], cost), _now_ms()
        reply = yield from self._decide(commands.check(key, rules, cost, meta), question, to_reply, Report.reply)
        if self.denials and reply.source == "server" and not reply.allowed and lasts(key_of(rules)):
            self.denials.keep(asked(key, rules, cost), key, reply, asked_ms)
        return reply

    def peek(self, key: str, rules: Rules, cost: Cost) -> Flow[Reply]:
        key = tested(key, rules, cost)
        if not rules:
            return UNLIMITED.reply()
        question = Question([Limit(key, rules)], cost, consumes=False)
        return (yield from self._decide(commands.peek(key, rules, cost), question, to_reply, Report.reply))

    def wait(self, key: str, rules: Rules, turn: Turn, cost: Cost, meta: str | None) -> Flow[Reply]:
        self.need_module("RL.WAIT")
        key = tested(key, rules, cost)
        tested_turn(turn)
        if not rules:
            return UNLIMITED.reply()
        question = Question([Limit(key, rules)], cost)
        words = commands.wait(key, rules, turn, cost, meta)
        return (yield from self._decide(words, question, to_reply, Report.reply, turn.wait_s))

    def check_all(
        self, limits: Sequence[Limit], cost: Cost, meta: str | None, held: Held | None = None
    ) -> Flow[Report]:
        """`held`: the hold that the caller settles with `end_all` when it knows whether the request counts."""
        limits = [Limit(tested(key, rules, cost), rules) for key, rules in limits]
        limits = [limit for limit in limits if limit.rules]
        if not limits:
            return UNLIMITED
        asked_ms = _now_ms()
        what = (tuple((key, key_of(rules)) for key, rules in limits), hashable(cost))
        if self.denials and isinstance(known := self.denials.get(what, asked_ms), Report):
            return known
        one_by_one = not self.has_module or (self.separately and len(limits) > 1)
        try:
            report = yield from (self._check_each if one_by_one else self._check_together)(limits, cost, meta, held)
        except Exception as error:
            report = self._stand_in(Question(limits, cost, held), error)
            yield from self._refuse_slots(report, limits, held)
        if self.denials and report.source == "server" and not report.allowed:
            # A denial of keys that are checked one by one does not report the rules of the later keys.
            shown = tuple(rule.rule for rule in report.rules)
            if all(lasts(key_of(rules)) for _, rules in limits) if one_by_one else lasts(shown):
                follow_a_plan = any(commands.follow_a_plan(rules) for _, rules in limits)
                self.denials.keep(what, report.key, report, asked_ms, follow_a_plan)
        return report

    def check_any(self, limits: Sequence[Limit], cost: Cost, meta: str | None, most: bool) -> Flow[Report]:
        """A limiter that stands in for the server knows no pools, and decides by the first key."""
        if not limits:
            raise ValueError("a pool has no key, expected at least one")
        limits = [Limit(tested(key, rules, cost), rules) for key, rules in limits]
        words = commands.check_any(limits, cost, meta, most)
        return (yield from self._report(words, Question(limits[:1], cost)))

    def _check_together(self, limits: Sequence[Limit], cost: Cost, meta: str | None, held: Held | None) -> Flow[Report]:
        def ask(held: Held | None) -> Flow[Report]:
            words = commands.check_all(limits, cost, meta, held)
            return self._by_server(words, Question(limits, cost, held), partial(to_report, key=limits[0].key))

        try:
            report = yield from ask(held)
        except Exception as error:
            if held is None or not has_too_many_holds(error):
                raise
        else:
            yield from self._refuse_slots(report, limits, held)
            return report
        self._warn_of_holds()
        return (yield from ask(None))

    def _refuse_slots(self, report: Report, limits: Sequence[Limit], held: Held | None) -> Flow[None]:
        """Gives back `held` and raises an error if a policy had slots."""
        slots = next((rule.rule for rule in report.rules if rule.rule.startswith("slots:")), None)
        if held is not None and slots is not None:
            yield from self.end_all([limit.key for limit in limits], held.id, refund=True)
            raise ValueError(f"the rules have {slots!r}, expected others: {SLOTS_ARE_HELD}")

    def _warn_of_holds(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._warn_at_s:
            self._warn_at_s = now_s + self.breaker.REPORT_S
            LOG.warning(
                "a key has all the holds it may have (ratelimit.max-holds): requests count whatever their answer"
            )

    def _check_each(self, limits: Sequence[Limit], cost: Cost, meta: str | None, held: Held | None) -> Flow[Report]:
        """Checks one key after the other. After a denial or an error, gives back what the earlier keys consumed."""
        if len({limit.key for limit in limits}) < len(limits):  # a second check would only repeat the hold
            raise ValueError("a key is given twice, expected each key once")
        if isinstance(cost, tuple):
            self.need_module("a range of costs")
        own, passed, rules = held or Held.new(SEPARATE_MS), list[Passed](), tuple[RuleReport, ...]()
        for limit, own_cost in zip(limits, commands.costs_apart(cost, limits), strict=True):
            is_last = len(passed) + 1 == len(limits)  # no later key can deny
            ask = self._check_together if self.has_module else self._check_by_script
            try:
                report = yield from ask([limit], own_cost, meta, held if is_last else own)
            except Exception as error:
                if passed and is_undecided(error):  # a silent server delays no answer
                    yield Beside(self._take_back_late(passed, own))
                else:
                    yield from self._take_back(passed, own)
                raise
            rules += report.rules
            if not report.allowed:
                yield from self._take_back(passed, own)
                return replace(report, rules=rules)
            passed.append(Passed(limit, own_cost, report))
        slowest = max((one.report for one in passed), key=lambda report: report.wait_ms)
        return replace(slowest, rules=rules)

    def _check_by_script(
        self, limits: Sequence[Limit], cost: Cost, meta: str | None, held: Held | None
    ) -> Flow[Report]:
        """The script knows no holds."""
        [limit] = limits

        def read(sent: Any) -> Report:
            return script.report(to_reply(sent), limit, cost)

        words = commands.check(limit.key, limit.rules, cost, meta)
        return (yield from self._by_server(words, Question(limits, cost), read))

    def _take_back(self, passed: Sequence[Passed], own: Held) -> Flow[None]:
        """Gives back what the keys that let the request pass have consumed."""
        if self.has_module:
            yield from self.end_all([limit.key for limit, _, _ in passed], own.id, refund=True)
            return
        for limit, cost, _ in passed:
            try:
                for units, rules in script.charges(limit.rules, cost).items():
                    yield from self.refund(limit.key, units, rules)
            except Exception as error:
                stays_charged(error)

    def _take_back_late(self, passed: Sequence[Passed], own: Held) -> Flow[None]:
        """`_take_back` while the server may be away. A refund is sent only once: a second one could give back twice."""
        if self.has_module:
            return self._give_back([limit.key for limit, _, _ in passed], own.id)
        return self._take_back(passed, own)

    def peek_all(self, key: str, rules: Rules) -> Flow[Report]:
        key = tested(key, rules)
        if not rules:
            return UNLIMITED
        return (yield from self._report(commands.peek_all(key, rules), Question([Limit(key, rules)], consumes=False)))

    def hold(self, key: str, rules: Rules, cost: Cost, held: Held, turn: Turn) -> Flow[Report]:
        key = tested(key, rules, cost)
        tested_turn(turn)
        words = commands.hold(key, rules, cost, held, turn)
        return (yield from self._report(words, Question([Limit(key, rules)], cost, held), turn.wait_s))

    def lease(self, key: str, rules: Rules, units: int, most: int, held: Held) -> Flow[Report]:
        """Takes up to `most` units ahead, or decides over the `units` alone if the server is away."""
        if not rules:
            return UNLIMITED
        limits = [Limit(key, rules)]
        words = commands.check_all(limits, (units, max(units, most)), None, held)
        return (yield from self._report(words, Question(limits, units), late=held))

    def settle(self, key: str, id: str, cost: Cost | None, refund: bool) -> Flow[bool]:
        key = given.key(key)
        if cost is not None:
            given.cost(cost)
        if self.local.settle(key, id, cost, refund, _now_ms()):
            return True
        send = self._free if refund or cost is not None else self.send
        return (yield from send(commands.settle(key, id, cost, refund), bool))

    def renew(self, key: str, id: str, ttl_ms: int) -> Flow[bool]:
        key = given.key(key)
        if self.local.renew(key, id, ttl_ms, _now_ms()):
            return True
        return (yield from self.send(commands.renew(key, id, ttl_ms), bool))

    def keep_renewing(self, key: str, held: Held, since_s: float) -> Flow[None]:
        """Renews a hold three times in each `ttl`, and returns when it is lost."""
        ttl_s = held.ttl_ms / 1000
        ends_s = since_s + ttl_s
        while (now_s := time.monotonic()) < ends_s:
            yield Pause(min(ttl_s / 3, ends_s - now_s))
            asked_s = time.monotonic()
            try:
                lives = yield from self.renew(key, held.id, held.ttl_ms)
            except Exception:  # the next attempt may find the server again
                continue
            if not lives:
                return
            ends_s = asked_s + ttl_s

    def refund(self, key: str, units: int, rules: Rules) -> Flow[int]:
        key = tested(key, rules)
        given.units(units)
        return (yield from self._free(commands.refund(key, units, rules), int))

    def end_all(self, keys: Iterable[str], id: str, *, refund: bool) -> Flow[None]:
        """Settles the hold of each key. A key that cannot be settled stays charged, but no request fails."""
        for key in keys:
            try:
                yield from self.settle(key, id, None, refund)
            except Exception as error:
                stays_charged(error)

    def give_up(self, keys: Sequence[str], id: str) -> Flow[None]:
        """Gives back, twice, holds whose command was cut short: the server may read the command after the first try."""
        for _ in range(2):
            yield from self.end_all(keys, id, refund=True)

    def _give_back(self, keys: Iterable[str], id: str) -> Flow[None]:
        """Gives back holds that the server may have taken without replying, but no hold of the local limiter."""
        left, until_s = set(keys), time.monotonic() + LONGEST_S
        for s in LATE_S:
            yield Pause(s)
            for key in sorted(left):
                if (yield from self._settle_before(until_s, commands.settle(key, id, None, True))):
                    left.discard(key)
            if not left:
                return

    def _settle_before(self, until_s: float, words: Words) -> Flow[bool]:
        """Settles a hold. While the server is away, it waits and tries again."""
        while True:
            try:
                if not self.breaker.rests(time.monotonic()):
                    return (yield from self._free(words, bool))
            except Exception as error:
                if not is_away(error):
                    return False
            if self.closed or time.monotonic() > until_s:
                return False
            yield Pause(AGAIN_S)

    def reset(self, key: str) -> Flow[bool]:
        key = given.key(key)
        self.local.reset(key)
        return (yield from self._free(("RL.RESET", key), bool))

    def pause(self, key: str, ms: int, reason: str | None) -> Flow[int]:
        self.need_module("pause")
        key = given.key(key)
        left_ms = self.local.pause(key, ms, _now_ms())
        try:
            return (yield from self.send(commands.pause(key, ms, reason), int))
        except Exception as error:
            if self.mode != "local" or not is_outage(error):
                raise
            return left_ms

    def resume(self, key: str) -> Flow[bool]:
        key = given.key(key)
        self.local.resume(key)
        return (yield from self._free(("RL.RESUME", key), bool))

    def plan(self, key: str, policy: str, ms: int | None) -> Flow[None]:
        yield from self._free(commands.plan(given.key(key), policy, ms), bool)

    def unplan(self, key: str) -> Flow[bool]:
        return (yield from self._free(("RL.UNPLAN", given.key(key)), bool))

    def sync(self, key: str, remaining: int, rule: str) -> Flow[int]:
        given.units(remaining)
        return (yield from self.send(commands.sync(tested(key, rule), remaining, rule), int))

    def follow(self, key: str, status: int, headers: upstream.Headers, remaining: Mapping[str, str]) -> Flow[int]:
        """Raises no outage: other processes learn the limits from the upstream's answers to them."""
        self.need_module("follow")
        told, paused_ms = upstream.fields(headers), 0
        try:
            if ms := upstream.pause_ms(status, told, time.time()):
                paused_ms = yield from self.pause(key, ms, str(status))
            for field, rule in remaining.items():
                left = upstream.remaining(told.get(field.lower(), ""))
                if left is not None and (yield from self._has_more(key, left, rule)):
                    yield from self.sync(key, left, rule)
        except Exception as error:
            if not is_outage(error):
                raise
        return paused_ms

    def _has_more(self, key: str, left: int, rule: str) -> Flow[bool]:
        report = yield from self.peek_all(key, rule)
        return any(rule.remaining > left for rule in report.rules)

    def call(self, words: Words) -> Flow[Any]:
        """Sends any command."""
        return (yield from self.send(words, lambda reply: reply))

    def send(self, words: Words, read: Callable[[Any], Answer]) -> Flow[Answer]:
        """Sends a command that only the server can answer; an outage is an error. The breaker does not count a refused
        or unknown command, since checks may still work."""
        words = self._for_engine(words)
        if not self.breaker.may_ask(time.monotonic()):
            raise self.breaker.error.with_traceback(None)
        try:
            sent = yield from self._ask(Command(words, always=self.breaker.away))
        except NotAsked:
            raise self.breaker.error.with_traceback(None) from None
        except Exception as error:
            if not is_refusal(error):
                self._judge(error)
            raise
        self.breaker.served()
        return read(sent)

    def _report(
        self, words: Words, question: Question, wait_s: float | None = None, late: Held | None = None
    ) -> Flow[Report]:
        read = partial(to_report, key=question.limits[0].key)
        return (yield from self._decide(words, question, read, lambda report: report, wait_s, late))

    def _decide(
        self,
        words: Words,
        question: Question,
        read: Callable[[Any], Decided],
        adapt: Callable[[Report], Decided],
        wait_s: float | None = None,
        late: Held | None = None,
    ) -> Flow[Decided]:
        try:
            return (yield from self._by_server(words, question, read, wait_s, late))
        except Exception as error:
            return adapt(self._stand_in(question, error))

    def _by_server(
        self,
        words: Words,
        question: Question,
        read: Callable[[Any], Answer],
        wait_s: float | None = None,
        late: Held | None = None,
    ) -> Flow[Answer]:
        """The server's decision. An outage is an error. `late`: the hold that the server may have taken without
        replying, if that is not the question's own hold."""
        words = self._for_engine(words)
        late = (late or question.held) if self.has_module else None
        until_s = time.monotonic() + (wait_s or 0)
        while self.breaker.may_ask(time.monotonic()):
            try:
                if wait_s is not None and self.breaker.away:  # a try that cannot take long
                    yield Command(commands.peek(question.limits[0].key, "1/s", 1), always=True)
                    self.breaker.served()
                sent = yield from self._ask(Command(words, wait_s, always=self.breaker.away))
            except NotAsked:
                break
            except Exception as error:
                left_s = until_s - time.monotonic()
                if left_s > 0 and str(error).startswith("UNBLOCKED"):  # back into the line, for the time that is left
                    wait_s, words = left_s, (*words[:2], round(left_s * 1000), *words[3:])
                    continue
                self._judge(error)
                if late and is_away(error):
                    yield Beside(self._give_back({limit.key for limit in question.limits}, late.id))
                raise
            self.breaker.served()
            return read(sent)
        raise self.breaker.error.with_traceback(None)

    def _for_engine(self, words: Words) -> Words:
        return words if self.has_module else script.evalsha(words)

    def _ask(self, command: Command) -> Flow[Any]:
        try:
            return (yield command)
        except Exception as error:
            if self.has_module or not script.has_forgotten(error):
                raise
        return (yield command._replace(words=script.evaluate(command.words)))

    def _judge(self, error: Exception) -> None:
        """Tells the breaker what an error says of the server."""
        if is_outage(error):
            self.breaker.failed(error, time.monotonic(), advice(error))
        elif is_answer(error):
            self.breaker.served()  # the request was wrong

    def _stand_in(self, question: Question, error: Exception) -> Report:
        """The answer to a question that the server did not decide."""
        if not is_outage(error):
            raise error
        self.breaker.count()
        key = question.limits[0].key
        granted = question.cost[1] if isinstance(question.cost, tuple) else None
        if self.mode == "local":
            return self.local.decide(question, _now_ms())
        if self.mode == "allow":
            return Report("allowed", 0, (), key, granted, "outage")
        if self.mode == "deny":
            return Report("limited", 1000, (), key, granted and 0, "outage")
        raise error

    def _free(self, words: Words, read: Callable[[Any], Answer]) -> Flow[Answer]:
        """Sends a command that frees a key. Forgets remembered denials before and after: replies to older checks may
        arrive in between."""
        self._forget(str(words[1]))
        try:
            return (yield from self.send(words, read))
        finally:
            self._forget(str(words[1]))

    def _forget(self, key: str) -> None:
        if self.denials:
            self.denials.forget(key)


def tested(key: str, rules: Rules, cost: Cost = 1) -> str:
    """Tests what a request counts with, in this process too, and returns the key as the server gets it."""
    given.texts_of_rules("the limit", rules)
    given.cost(cost)
    return given.key(key)


def tested_turn(turn: Turn) -> None:
    if turn.wait_s is not None:
        given.seconds("the time to wait", turn.wait_s, from_0=True)


def stays_charged(error: Exception) -> None:
    if not is_undecided(error):
        LOG.error("a request that does not count stays charged (%s)", described(error))


def _now_ms() -> float:
    return time.monotonic() * 1000
