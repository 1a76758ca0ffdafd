"""What `RateLimiter` and `AsyncRateLimiter` have in common: everything but how a command is sent.

Each method is a flow: a generator that yields a command, gets the server's reply or error, and returns the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, Unpack

from . import _commands as commands
from . import _given as given
from . import _script as script
from . import _upstream as upstream
from ._commands import Command, Cost, Held, Limit, Line, Question, Rules, Turn, Words
from ._denials import Denials, asked, hashable, key_of, lasts
from ._errors import LOG, has_too_many_holds, is_outage, is_undecided
from ._events import DecisionEvent, Events, tell
from ._flows import Answer, Beside, Flow
from ._links import Lost
from ._local import Estimate
from ._options import Settings
from ._replies import Reply, Report, RuleReport, flag, to_granted, to_reply, to_report, whole
from ._unsettled import Unsettled

Decided = TypeVar("Decided", Reply, Report)

#: The time of a hold on a key that is checked separately: its charge can be given back until the last key is decided.
SEPARATE_MS = 10_000

#: A request whose process dies would keep its slot for an hour.
SLOTS_ARE_HELD = "slots are held, ask for them with hold()"
#: A charge before the outcome must not ban: eight logins at once, all of them right, would ban their address.
BANS_ARE_FINAL = "a request is charged before its outcome is known, and a ban outlasts the charge"


#: The keys of a hold, and the hold.
Late = tuple[list[str], Held]


class Passed(NamedTuple):
    """A key that let a request pass, of several that are asked one after the other."""

    limit: Limit
    cost: Cost
    report: Report


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


class InProcess(ConnectionError):
    """The limiter asks no server."""


class Core:
    def __init__(self, chosen: Settings) -> None:
        self.mode = chosen.outage
        #: Whether no server is asked at all.
        self.in_process = False
        self.events = Events(chosen.on_outage, chosen.on_misconfigured, chosen.on_decision)
        self.local = Estimate(chosen.processes, chosen.policies or {})
        self.unsettled = Unsettled()
        self.has_module = chosen.engine == "module"
        self.separately = chosen.separately or not self.has_module
        self.denials = Denials(chosen.remember_denials) if chosen.remember_denials else None
        self._tells = self.events.on_decision is not None

    def after_fork(self) -> None:
        self.events.renew()
        self.local.renew_lock()
        self.unsettled.after_fork()
        if self.denials:
            self.denials.renew_lock()

    def need_module(self, what: str) -> None:
        """Refuses what the script cannot do."""
        if not self.has_module:
            raise script.needs_module(what)

    def test_rules(self, rules: Rules) -> None:
        for rule in () if self.has_module else commands.texts(rules):
            script.test(rule)

    def _told(self, flow: Flow[Decided], *rules: Rules) -> Flow[Decided]:
        """The flow of a check, which tells `on_decision` its answer."""
        return self._telling(flow, rules) if self._tells else flow

    def _telling(self, flow: Flow[Decided], rules: Sequence[Rules]) -> Flow[Decided]:
        began_s = time.monotonic()
        answer = yield from flow
        self.tell(answer, rules, (time.monotonic() - began_s) * 1000)
        return answer

    def tell(self, answer: Reply | Report, rules: Sequence[Rules], ms: float) -> None:
        if self.events.on_decision:
            event = DecisionEvent(answer.source, answer.verdict, _decided_by(answer, rules), ms)
            tell(self.events.on_decision, event)

    def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Flow[Reply]:
        """Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`."""
        return self._told(self._check(key, rules, cost, meta), rules)

    def _check(self, key: str, rules: Rules, cost: Cost, meta: str | None) -> Flow[Reply]:
        key, asked_ms = tested(key, rules, cost), _now_ms() if self.denials else 0.0
        if self.denials and (known := self.denials.get(asked(key, rules, cost), asked_ms)):
            return known  # type: ignore[return-value]
        try:
            words = commands.check(key, rules, cost, meta)
            reply: Reply = yield from self._ask(words, to_granted if type(cost) is tuple else to_reply)
        except Exception as error:
            return (yield from self._stand_in(Question([Limit(key, rules)], cost), error)).reply()
        if self.denials and not reply.allowed and lasts(key_of(rules)):
            self.denials.keep(asked(key, rules, cost), key, reply, asked_ms)
        return reply

    def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Flow[Reply]:
        """Decides without consuming: `RL.PEEK`."""
        key = tested(key, rules, cost)
        try:
            words = commands.peek(key, rules, cost)
            reply: Reply = yield from self._ask(words, to_granted if type(cost) is tuple else to_reply, again=True)
            return reply
        except Exception as error:
            question = Question([Limit(key, rules)], cost, consumes=False)
            return (yield from self._stand_in(question, error)).reply()

    def wait(
        self, key: str, rules: Rules, timeout: float, *, cost: Cost = 1, meta: str | None = None, **line: Unpack[Line]
    ) -> Flow[Reply]:
        """Waits in line until the request may pass, at most `timeout` seconds: `RL.WAIT`, on a separate connection.
        Flows take turns in proportion to their weights; a higher priority goes first."""
        return self._told(self._wait(key, rules, Turn(timeout, **line), cost, meta), rules)

    def _wait(self, key: str, rules: Rules, turn: Turn, cost: Cost, meta: str | None) -> Flow[Reply]:
        self.need_module("RL.WAIT")
        key = tested(key, rules, cost)
        tested_turn(turn)
        try:
            words = commands.wait(key, rules, turn, cost, meta)
            return (yield from self._in_line(words, to_granted if type(cost) is tuple else to_reply, turn.wait_s))
        except Exception as error:
            return (yield from self._stand_in(Question([Limit(key, rules)], cost), error)).reply()

    def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Flow[Report]:
        """Decides over one or several keys, consumes from all or from none, and reports on each rule: `FULL`."""
        return self.check_held(limits, cost, None, meta)

    def check_held(
        self, limits: Sequence[Limit], cost: Cost, held: Held | None, meta: str | None = None
    ) -> Flow[Report]:
        """`check_all`. `held`: the hold that the caller settles with `end_all` when it knows whether the request
        counts."""
        flow = self._check_all(limits, cost, meta, held)
        return self._told(flow, *(rules for _, rules in limits)) if self._tells else flow

    def _check_all(self, limits: Sequence[Limit], cost: Cost, meta: str | None, held: Held | None) -> Flow[Report]:
        limits, asked_ms = tested_limits(limits, cost), _now_ms()
        what = (tuple((key, key_of(rules)) for key, rules in limits), hashable(cost))
        if self.denials and isinstance(known := self.denials.get(what, asked_ms), Report):
            return known
        one_by_one = not self.has_module or (self.separately and len(limits) > 1)
        try:
            report = yield from (self._check_each if one_by_one else self._check_together)(limits, cost, meta, held)
        except Exception as error:
            report = yield from self._stand_in(Question(limits, cost, held), error)
            yield from self._refuse_what_lasts(report, limits, held)
        if self.denials and report.source == "server" and not report.allowed:
            # A denial of keys that are checked one by one does not report the rules of the later keys.
            shown = tuple(rule.rule for rule in report.rules)
            if all(lasts(key_of(rules)) for _, rules in limits) if one_by_one else lasts(shown):
                follow_a_plan = any(commands.follow_a_plan(rules) for _, rules in limits)
                self.denials.keep(what, report.key, report, asked_ms, follow_a_plan)
        return report

    def check_any(
        self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None, most: bool = False
    ) -> Flow[Report]:
        """Consumes from the first key that lets the request pass, or with `most` from the one that has the most left
        afterwards, and from no other: `ANY`. The report has that key, or after a denial the key with the shortest
        wait."""
        limits = tested_limits(limits, cost)
        words = commands.check_any(limits, cost, meta, most)
        asking = self._report(words, Question(limits[:1], cost))  # an estimate knows no pools
        return (yield from self._told(asking, *(rules for _, rules in limits)))

    def _check_together(self, limits: Sequence[Limit], cost: Cost, meta: str | None, held: Held | None) -> Flow[Report]:
        read, late = partial(to_report, key=limits[0].key), held and ([limit.key for limit in limits], held)
        try:
            words = commands.check_all(limits, cost, meta, held)
            report: Report = yield from self._ask(words, read, held is not None, late=late)
        except Exception as error:
            if held is None or not has_too_many_holds(error):
                raise
        else:
            yield from self._refuse_what_lasts(report, limits, held)
            return report
        if self.events.is_due("holds"):
            LOG.warning(
                "a key has all the holds it may have (ratelimit.max-holds): requests count whatever their answer"
            )
        return (yield from self._ask(commands.check_all(limits, cost, meta), read))

    def _refuse_what_lasts(self, report: Report, limits: Sequence[Limit], held: Held | None) -> Flow[None]:
        """Gives back `held` and raises an error if a policy had slots, or a rule that bans."""
        wrong = next(filter(None, (why_not_held(rule.rule) for rule in report.rules)), None)
        if held is not None and wrong:
            yield from self.end_all([limit.key for limit in limits], held, refund=True)
            raise ValueError(f"the rules have {wrong}")

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
                if is_undecided(error):  # a silent server delays no answer
                    yield Beside(self._take_back(passed, own))
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
        reply: Reply = yield from self._ask(commands.check(limit.key, limit.rules, cost, meta), to_reply)
        return script.report(reply, limit, cost)

    def _take_back(self, passed: Sequence[Passed], own: Held) -> Flow[None]:
        """Gives back what the keys that let the request pass have consumed. A refund is sent only once: a second one
        could give back twice."""
        if self.has_module:
            yield from self.end_all([limit.key for limit, _, _ in passed], own, refund=True)
            return
        for limit, cost, _ in passed:
            for units, rules in script.charges(limit.rules, cost).items():
                try:
                    yield from self.refund(limit.key, units, rules)
                except Exception as error:
                    if not is_undecided(error):
                        raise

    def peek_all(self, key: str, rules: Rules) -> Flow[Report]:
        """Reports on each rule of a key without consuming."""
        key = tested(key, rules)
        question = Question([Limit(key, rules)], consumes=False)
        return (yield from self._report(commands.peek_all(key, rules), question, again=True))

    def hold(self, key: str, rules: Rules, cost: Cost, held: Held, turn: Turn) -> Flow[Report]:
        key = tested(key, rules, cost)
        tested_turn(turn)
        words = commands.hold(key, rules, cost, held, turn)
        asking = self._report(words, Question([Limit(key, rules)], cost, held), turn.wait_s, again=True)
        return (yield from self._told(asking, rules))

    def lease(self, key: str, rules: Rules, units: int, most: int, held: Held) -> Flow[Report]:
        """Takes up to `most` units ahead, or decides over the `units` alone if the server is away."""
        limits = [Limit(key, rules)]
        words = commands.check_all(limits, (units, max(units, most)), None, held)
        return (yield from self._report(words, Question(limits, units), late=held, again=True))

    def settle(self, key: str, id: str, *, cost: Cost | None = None, refund: bool = False) -> Flow[bool]:
        """Ends a hold: its charges stand, are corrected to `cost`, or come back. Says whether there was one."""
        key = given.key(key)
        if cost is not None:
            given.cost(cost)
        if self.local.settle(key, id, cost, refund):
            return True
        send = self._free if refund or cost is not None else self._send
        return (yield from send(commands.settle(key, id, cost, refund), flag, again=True))

    def end(self, key: str, held: Held, cost: Cost | None, refund: bool) -> Flow[bool]:
        """Settles a hold of this process. In an outage the settlement is kept, and its error raised."""
        try:
            found = yield from self.settle(key, held.id, cost=cost, refund=refund)
            self.unsettled.forget([key], held.id)
            return found
        except Exception as error:
            if is_undecided(error) and not self.in_process:
                yield from self.keep(key, held, cost, refund)
            raise
        except GeneratorExit:  # the task that settles was cancelled, as at the end of its loop
            self.unsettled.add(key, held, commands.settle(key, held.id, cost, refund), late=False)
            raise

    def keep(self, key: str, held: Held, cost: Cost | None, refund: bool, *, late: bool = False) -> Flow[None]:
        """Settles a hold in the background. `late`: its check may reach the server later than the settlement."""
        self.unsettled.add(key, held, commands.settle(key, held.id, cost, refund), late)
        if self.unsettled.begin():
            yield Beside(self.settle_rest())

    def renew(self, key: str, id: str, ttl: float) -> Flow[bool]:
        """Moves the end of a hold to `ttl` seconds from now. Says whether there was one."""
        key, ttl_ms = given.key(key), given.ms("ttl", ttl, commands.LONGEST_S)
        if self.local.renew(key, id, ttl_ms):
            return True
        return (yield from self._send(commands.renew(key, id, ttl_ms), flag, again=True))

    def refund(self, key: str, units: int, rules: Rules = ()) -> Flow[int]:
        """Gives units back to the states of some rules, or of all; returns the largest number that one state got."""
        key = tested(key, rules) if rules != () else given.key(key)
        given.units(units)
        if self.in_process:
            return self.local.refund(key, units, rules)
        return (yield from self._free(commands.refund(key, units, rules), whole))

    def end_all(self, keys: Iterable[str], held: Held, *, refund: bool) -> Flow[None]:
        """Settles the hold of each key, later if the server is away. No request fails because of it."""
        for key in keys:
            try:
                yield from self.end(key, held, None, refund)
            except Exception as error:
                if not is_undecided(error):
                    LOG.error("a request that does not count stays charged (%s)", type(error).__name__)

    def _give_back(self, keys: Iterable[str], held: Held) -> Flow[None]:
        """Gives back holds that the server may have taken without replying, or may still take."""
        for key in keys:
            yield from self.keep(key, held, None, True, late=True)

    def abandon(self, keys: Sequence[str], id: str) -> None:
        """Leaves holds, whose check was cut short as its loop ended, to the next loop."""
        held = Held(id, round(1000 * LATE_FOR_S), True)
        for key in keys:
            self.unsettled.add(key, held, commands.settle(key, id, None, True), late=True)

    def settle_rest(self, at_once: bool = False) -> Flow[None]:
        return self.unsettled.settle(self._free, at_once)

    def give_up(self, keys: Sequence[str], id: str, lost: bool = True) -> Flow[None]:
        """Gives back holds whose caller was interrupted. If the check was `lost`, the server may read it later."""
        held = Held(id, round(1000 * LATE_FOR_S), True)
        yield from self.end_all(keys, held, refund=True)
        if lost:
            yield from self._give_back(keys, held)

    def reset(self, key: str) -> Flow[bool]:
        """Forgets what was consumed, and says whether there was anything. Blocks, exemptions and the history stay."""
        key = given.key(key)
        was = self.local.reset(key)
        return was if self.in_process else (yield from self._free(("RL.RESET", key), flag))

    def pause(self, key: str, seconds: float, reason: str | None = None) -> Flow[int]:
        """Denies every check of the key for `seconds`; a pause that lasts longer stays: `RL.PAUSE`. Returns the
        milliseconds that are left."""
        self.need_module("pause")
        key, ms = given.key(key), given.ms("the time of the pause", seconds, commands.LONGEST_S)
        left_ms = self.local.pause(key, ms)
        try:
            return (yield from self._send(commands.pause(key, ms, reason), whole))
        except Exception as error:
            if self.mode != "local" or not is_outage(error):
                raise
            return left_ms

    def resume(self, key: str) -> Flow[bool]:
        """Ends a pause: `RL.RESUME`. Says whether there was one."""
        key = given.key(key)
        was = self.local.resume(key)
        return was if self.in_process else (yield from self._free(("RL.RESUME", key), flag))

    def plan(self, key: str, policy: str, seconds: float | None = None) -> Flow[None]:
        """Binds a policy to the key, for `seconds` or until `unplan`: rules such as `"@plan:free"` then stand for
        that policy."""
        ms = None if seconds is None else given.ms("the time of the plan", seconds)
        yield from self._free(commands.plan(given.key(key), policy, ms), bool)

    def unplan(self, key: str) -> Flow[bool]:
        """Forgets the plan of the key: `RL.UNPLAN`. Says whether there was one."""
        return (yield from self._free(("RL.UNPLAN", given.key(key)), flag))

    def sync(self, key: str, remaining: int, rule: str) -> Flow[int]:
        """Lowers the remaining units of a rule, never raises them: `RL.SYNC`. Returns the units consumed for that."""
        given.units(remaining)
        return (yield from self._send(commands.sync(tested(key, rule), remaining, rule), whole))

    def follow(
        self, key: str, status: int, headers: upstream.Headers, remaining: Mapping[str, str] = MappingProxyType({})
    ) -> Flow[int]:
        """Does what an upstream's answer says: a 429, 503, 529 or 403 pauses the key, and a field that says how many
        units remain lowers the rule to that number. `remaining` maps each such field to its rule:
        `{"x-ratelimit-remaining-tokens": "bucket:30000/m"}`.

        A pause lasts as long as `Retry-After` says or, for a 429 or 403 without it, until the reset of what is used
        up: at most 366 days. Returns the pause's milliseconds, or 0. Fields that make no sense change nothing; an
        outage raises nothing: other processes learn the limits from the upstream's answers to them.
        """
        self.need_module("follow")
        key = given.key(key)
        told, paused_ms = upstream.fields(headers), 0
        try:
            if ms := upstream.pause_ms(status, told, time.time()):
                paused_ms = yield from self.pause(key, ms / 1000, str(status))
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

    def call(self, name: str, key: str, *words: str | int) -> Flow[Any]:
        """Sends any other command whose first argument is its key, such as `RL.INFO`."""
        return (yield from self._send((name, key, *words), lambda reply: reply))

    def _report(
        self,
        words: Words,
        question: Question,
        wait_s: float | None = None,
        late: Held | None = None,
        again: bool = False,
    ) -> Flow[Report]:
        """`late`: the hold that the server may have taken without replying, if that is not the question's own."""
        read, held = partial(to_report, key=question.limits[0].key), late or question.held
        lost = held and ([limit.key for limit in question.limits], held)
        try:
            return (yield from self._in_line(words, read, wait_s, again, lost))
        except Exception as error:
            return (yield from self._stand_in(question, error))

    def _in_line(
        self,
        words: Words,
        read: Callable[[Any], Answer],
        wait_s: float | None,
        again: bool = False,
        late: Late | None = None,
    ) -> Flow[Answer]:
        """Asks, and goes back into the line, for the time that is left, if the server lets the line go."""
        until_s = time.monotonic() + (wait_s or 0)
        while True:
            try:
                return (yield from self._ask(words, read, again, wait_s, late))
            except Exception as error:
                wait_s = until_s - time.monotonic()
                if wait_s <= 0 or not str(error).startswith("UNBLOCKED"):
                    raise
                words = (*words[:2], round(wait_s * 1000), *words[3:])

    def _ask(
        self,
        words: Words,
        read: Callable[[Any], Answer],
        again: bool = False,
        wait_s: float | None = None,
        late: Late | None = None,
    ) -> Flow[Answer]:
        """`late`: the holds that the server may have taken if its reply was lost. They are given back."""
        if self.in_process:
            raise InProcess
        try:
            if self.has_module:
                answer: Answer = yield Command(words, read, again, wait_s)
            else:
                answer = yield from self._ask_script(script.evalsha(words), read, again)
            return answer
        except Lost as lost:
            if late and lost.stage == "read":
                yield from self._give_back(*late)
            raise lost.error from None

    def _ask_script(self, words: Words, read: Callable[[Any], Answer], again: bool) -> Flow[Answer]:
        try:
            answer: Answer = yield Command(words, read, again)
        except Exception as error:
            if not script.has_forgotten(error):
                raise
            answer = yield Command(script.evaluate(words), read, again)
        return answer

    def _send(self, words: Words, read: Callable[[Any], Answer], again: bool = False) -> Flow[Answer]:
        """Sends a command that only the server can answer; an outage is an error."""
        try:
            return (yield from self._ask(words, read, again))
        except InProcess:
            if words[0] in ("RL.SETTLE", "RL.RENEW"):
                return read(0)  # there is no such hold
            if words[0] == "RL.PAUSE":
                raise
            raise ValueError(f"{words[0]} needs a server, but the limiter decides in this process") from None
        except Exception as error:
            self.events.failed(error)
            raise

    def _stand_in(self, question: Question, error: Exception) -> Flow[Report]:
        """The answer to a question that the server did not decide."""
        yield from ()
        if not is_outage(error):
            raise error
        if not self.in_process:
            self.events.undecided()
            self.events.failed(error)
        key = question.limits[0].key
        granted = question.cost[1] if isinstance(question.cost, tuple) else None
        if self.mode == "local":
            return self.local.decide(question)
        if self.mode == "allow":
            return Report("allowed", 0, (), key, granted, "outage")
        if self.mode == "deny":
            return Report("limited", 1000, (), key, granted and 0, "outage")
        raise error

    def _free(self, words: Words, read: Callable[[Any], Answer], again: bool = False) -> Flow[Answer]:
        """Sends a command that frees a key. Forgets remembered denials before and after: replies to older checks may
        arrive in between."""
        self._forget(words[1])
        try:
            return (yield from self._send(words, read, again))
        finally:
            self._forget(words[1])

    def _forget(self, key: str | int) -> None:
        if self.denials:
            self.denials.forget(key)


#: For how long a check that was cut short may still reach the server.
LATE_FOR_S = 60.0


def tested(key: str, rules: Rules, cost: Cost = 1) -> str:
    """Tests what a request counts with, in this process too, and returns the key as the server gets it."""
    given.texts_of_rules("the limit", rules)
    given.cost(cost)
    return given.key(key)


def tested_limits(limits: Sequence[Limit], cost: Cost) -> list[Limit]:
    given.limits(limits)
    return [Limit(tested(key, rules, cost), rules) for key, rules in limits]


def tested_turn(turn: Turn) -> None:
    if turn.wait_s is not None:
        given.seconds("the time to wait", turn.wait_s, from_0=True)


def why_not_held(rule: str) -> str | None:
    """Why a request that may be given back cannot be charged to this rule before its outcome is known."""
    if rule.startswith("slots:"):
        return f"{rule!r}, expected other rules: {SLOTS_ARE_HELD}"
    return f"{rule!r}, expected rules without ban=: {BANS_ARE_FINAL}" if ",ban=" in rule else None


def _decided_by(answer: Reply | Report, rules: Sequence[Rules]) -> str | None:
    """The first rule that denies, or the only one that was given."""
    if isinstance(answer, Report) and (denies := answer.denying()):
        return denies.name or denies.rule
    given = [rule for some in rules for rule in commands.texts(some)]
    if len(given) != 1:
        return None
    named = [option[5:] for option in given[0].split(",") if option.startswith("name=")]
    return named[0] if named else given[0]


def _now_ms() -> float:
    return time.monotonic() * 1000
