"""The commands of an application, on any client of redis-py or valkey-py: one server, sentinels or a cluster."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Unpack

from . import _given as given
from ._commands import LONGEST_S, Command, Cost, Limit, Rules, Turn
from ._core import Answer, Beside, Core, Effect, Flow
from ._options import TIMEOUT_S, Options, UrlOptions, settings
from ._replies import Reply, Report
from ._sending import AsyncSender, Sender
from ._upstream import Headers
from ._url import connector
from .holds import AsyncHold, Hold, held_for


class Counters:
    """What both limiters tell of an outage."""

    core: Core

    @property
    def outages(self) -> int:
        """How many requests got no decision from the server. Settlements and the like are not counted."""
        return self.core.breaker.outages

    @property
    def away(self) -> bool:
        """Whether the limiter has stopped asking, and only tries once a second."""
        return self.core.breaker.away


class RateLimiter(Counters):
    """A limiter on a client of `redis` or `valkey`. The client's time-outs and retries are the application's choice;
    `from_url` makes a client that has short time-outs and no retries. The argument may also be a function that makes
    the client when it is first needed: a `RedisCluster` connects when it is made, which fails while its cluster is
    away."""

    def __init__(self, client: Any, **options: Unpack[Options]) -> None:
        chosen = settings(options)
        self.core = Core(chosen)
        self._sender = Sender(client, self.core.breaker, chosen)
        self._made_client = False

    @classmethod
    def from_url(cls, url: str, **options: Unpack[UrlOptions]) -> RateLimiter:
        """Connects to `redis://`, `rediss://`, `unix://`, or `redis+cluster://`, and tries once. `options` are those of
        the limiter and of redis-py, and `timeout`, 0.25 seconds: for connecting and for a reply. In a cluster each node
        gets 0.4 of that."""
        connect, of_limiter, _ = connector(url, options, asynchronous=False)
        limiter = cls(connect if "+cluster" in url else connect(), **of_limiter)
        limiter._made_client = True
        return limiter

    @property
    def client(self) -> Any:
        return self._sender.client

    def close(self) -> None:
        """Closes the client, if `from_url` has made it."""
        self.core.closed = True
        if self._made_client:
            self._sender.close()

    def __enter__(self) -> RateLimiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        """Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`."""
        return self.core.remembered(key, rules, cost) or self.run(self.core.check(key, rules, cost, meta))

    def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        """Decides without consuming: `RL.PEEK`."""
        return self.run(self.core.peek(key, rules, cost))

    def wait(
        self,
        key: str,
        rules: Rules,
        timeout: float,
        *,
        cost: Cost = 1,
        meta: str | None = None,
        flow: str | None = None,
        weight: int = 1,
        priority: int = 0,
    ) -> Reply:
        """Waits in line until the request may pass, at most `timeout` seconds: `RL.WAIT`, on a separate connection.
        Flows take turns in proportion to their weights; a higher priority goes first."""
        return self.run(self.core.wait(key, rules, Turn(timeout, flow, weight, priority), cost, meta))

    def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Report:
        """Decides over one or several keys, consumes from all or from none, and reports on each rule: `FULL`."""
        return self.run(self.core.check_all(limits, cost, meta))

    def check_any(
        self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None, most: bool = False
    ) -> Report:
        """Consumes from the first key that lets the request pass, or with `most` from the one that has the most left
        afterwards, and from no other: `ANY`. The report has that key, or after a denial the key with the shortest
        wait."""
        return self.run(self.core.check_any(limits, cost, meta, most))

    def peek_all(self, key: str, rules: Rules) -> Report:
        """Reports on each rule of a key without consuming."""
        return self.run(self.core.peek_all(key, rules))

    def hold(
        self,
        key: str,
        rules: Rules,
        *,
        ttl: float,
        cost: Cost = 1,
        refund: bool = False,
        id: str | None = None,
        wait: float | None = None,
        flow: str | None = None,
        weight: int = 1,
        priority: int = 0,
    ) -> Hold:
        """A context manager: holds what the check consumes until the block ends; raises `Denied` after a denial.

        The hold is renewed while this process lives, and ends at most `ttl` seconds after the process dies. `refund`:
        its units then come back. `wait`: seconds to wait in line for the hold, as `wait` does.
        """
        return Hold(self, key, rules, cost, held_for(ttl, refund, id), Turn(wait, flow, weight, priority))

    def settle(self, key: str, id: str, *, cost: Cost | None = None, refund: bool = False) -> bool:
        """Ends a hold: its charges stand, are corrected to `cost`, or come back. Says whether there was one."""
        return self.run(self.core.settle(key, id, cost, refund))

    def renew(self, key: str, id: str, ttl: float) -> bool:
        """Moves the end of a hold to `ttl` seconds from now. Says whether there was one."""
        return self.run(self.core.renew(key, id, given.ms("ttl", ttl, LONGEST_S)))

    def refund(self, key: str, units: int, rules: Rules = ()) -> int:
        """Gives units back to the states of some rules, or of all; returns the largest number that one state got."""
        return self.run(self.core.refund(key, units, rules))

    def reset(self, key: str) -> bool:
        """Forgets what was consumed, and says whether there was anything. Blocks, exemptions and the history stay."""
        return self.run(self.core.reset(key))

    def pause(self, key: str, seconds: float, reason: str | None = None) -> int:
        """Denies every check of the key for `seconds`; a pause that lasts longer stays: `RL.PAUSE`. Returns the
        milliseconds that are left."""
        return self.run(self.core.pause(key, given.ms("the time of the pause", seconds, LONGEST_S), reason))

    def resume(self, key: str) -> bool:
        """Ends a pause: `RL.RESUME`. Says whether there was one."""
        return self.run(self.core.resume(key))

    def plan(self, key: str, policy: str, seconds: float | None = None) -> None:
        """Binds a policy to the key, for `seconds` or until `unplan`: rules such as `"@plan:free"` then stand for
        that policy."""
        self.run(self.core.plan(key, policy, None if seconds is None else given.ms("the time of the plan", seconds)))

    def unplan(self, key: str) -> bool:
        """Forgets the plan of the key: `RL.UNPLAN`. Says whether there was one."""
        return self.run(self.core.unplan(key))

    def sync(self, key: str, remaining: int, rule: str) -> int:
        """Lowers the remaining units of a rule, never raises them: `RL.SYNC`. Returns the units consumed for that."""
        return self.run(self.core.sync(key, remaining, rule))

    def follow(
        self, key: str, status: int, headers: Headers, remaining: Mapping[str, str] = MappingProxyType({})
    ) -> int:
        """Does what an upstream's answer says: a 429 or 503 pauses the key, and a field that says how many units remain
        lowers the rule to that number. `remaining` maps each such field to its rule:
        `{"x-ratelimit-remaining-tokens": "bucket:30000/m"}`.

        A pause lasts as long as `Retry-After` says or, for a 429 without it, until the reset that the answer gives: at
        most 366 days. Returns the pause's milliseconds, or 0. Fields that make no sense change nothing; an outage
        raises nothing.
        """
        return self.run(self.core.follow(key, status, headers, remaining))

    def call(self, name: str, key: str, *words: str | int) -> Any:
        """Sends any other command whose first argument is its key, such as `RL.INFO`."""
        return self.run(self.core.call((name, key, *words)))

    def run(self, flow: Flow[Answer], pause: Callable[[float], object] = time.sleep) -> Answer:
        try:
            effect = next(flow)
            while True:
                try:
                    sent = self._do(effect, pause)
                except Exception as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    def _do(self, effect: Effect, pause: Callable[[float], object]) -> Any:
        if isinstance(effect, Command):
            return self._sender.send(effect)
        if isinstance(effect, Beside):
            return threading.Thread(target=self.run, args=(effect.flow,), daemon=True).start()
        return pause(effect.s)


class AsyncRateLimiter(Counters):
    """A `RateLimiter` on a client of `redis.asyncio` or `valkey.asyncio`. `timeout` bounds each command, in seconds
    from when it has its place, whatever the time-outs and retries of the client are."""

    def __init__(self, client: Any, *, timeout: float = TIMEOUT_S, **options: Unpack[Options]) -> None:
        given.seconds("timeout", timeout)
        chosen = settings(options)
        self.core = Core(chosen)
        self._sender = AsyncSender(client, self.core.breaker, chosen, timeout)
        self._made_client = False
        self._under_way: set[asyncio.Task[Any]] = set()

    @classmethod
    def from_url(cls, url: str, **options: Unpack[UrlOptions]) -> AsyncRateLimiter:
        connect, of_limiter, timeout_s = connector(url, options, asynchronous=True)
        limiter = cls(connect(), timeout=timeout_s, **of_limiter)
        limiter._made_client = True
        return limiter

    @property
    def client(self) -> Any:
        return self._sender.client

    async def aclose(self) -> None:
        """Waits for the clean-ups of cancelled tasks, and closes the client, if `from_url` has made it."""
        self.core.closed = True
        while self._under_way:
            await asyncio.wait(self._under_way)
        if self._made_client:
            await self._sender.close()

    async def __aenter__(self) -> AsyncRateLimiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def begin(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Runs work beside the task that asks for it."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def take(self, taking: Flow[Report], keys: Sequence[str], id: str, *, in_line: bool = False) -> Report:
        """Asks for holds. If the task is cancelled meanwhile, they are given back, and a wait `in_line` ends."""
        asking = self.begin(self.run(taking))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if in_line:
                asking.cancel()
            self.begin(self._give_up(asking, keys, id))
            raise

    async def _give_up(self, asking: asyncio.Task[Report], keys: Sequence[str], id: str) -> None:
        """Lets a check run to its end, so that its reply says whether a hold was taken."""
        await asyncio.wait([asking])
        if asking.cancelled() or asking.exception():
            await self.run(self.core.give_up(keys, id))
        elif asking.result().allowed:
            await self.run(self.core.end_all(keys, id, refund=True))

    async def ask_all(self, asking: Flow[Report]) -> Report:
        """Asks. If keys are checked separately, a denial gives charges back even if the task is cancelled."""
        return await (self.finish(self.run(asking)) if self.core.separately else self.run(asking))

    async def finish(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Runs work to its end, even if the task that waits for it is cancelled."""
        return await asyncio.shield(self.begin(work))

    async def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        known = self.core.remembered(key, rules, cost)
        return known if known else await self.run(self.core.check(key, rules, cost, meta))

    async def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        return await self.run(self.core.peek(key, rules, cost))

    async def wait(
        self,
        key: str,
        rules: Rules,
        timeout: float,
        *,
        cost: Cost = 1,
        meta: str | None = None,
        flow: str | None = None,
        weight: int = 1,
        priority: int = 0,
    ) -> Reply:
        """Waits in line as `RateLimiter.wait` does. A task that is cancelled leaves the line."""
        return await self.run(self.core.wait(key, rules, Turn(timeout, flow, weight, priority), cost, meta))

    async def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Report:
        return await self.ask_all(self.core.check_all(limits, cost, meta))

    async def check_any(
        self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None, most: bool = False
    ) -> Report:
        return await self.run(self.core.check_any(limits, cost, meta, most))

    async def peek_all(self, key: str, rules: Rules) -> Report:
        return await self.run(self.core.peek_all(key, rules))

    def hold(
        self,
        key: str,
        rules: Rules,
        *,
        ttl: float,
        cost: Cost = 1,
        refund: bool = False,
        id: str | None = None,
        wait: float | None = None,
        flow: str | None = None,
        weight: int = 1,
        priority: int = 0,
    ) -> AsyncHold:
        return AsyncHold(self, key, rules, cost, held_for(ttl, refund, id), Turn(wait, flow, weight, priority))

    async def settle(self, key: str, id: str, *, cost: Cost | None = None, refund: bool = False) -> bool:
        return await self.run(self.core.settle(key, id, cost, refund))

    async def renew(self, key: str, id: str, ttl: float) -> bool:
        return await self.run(self.core.renew(key, id, given.ms("ttl", ttl, LONGEST_S)))

    async def refund(self, key: str, units: int, rules: Rules = ()) -> int:
        return await self.run(self.core.refund(key, units, rules))

    async def reset(self, key: str) -> bool:
        return await self.run(self.core.reset(key))

    async def pause(self, key: str, seconds: float, reason: str | None = None) -> int:
        return await self.run(self.core.pause(key, given.ms("the time of the pause", seconds, LONGEST_S), reason))

    async def resume(self, key: str) -> bool:
        return await self.run(self.core.resume(key))

    async def plan(self, key: str, policy: str, seconds: float | None = None) -> None:
        await self.run(
            self.core.plan(key, policy, None if seconds is None else given.ms("the time of the plan", seconds))
        )

    async def unplan(self, key: str) -> bool:
        return await self.run(self.core.unplan(key))

    async def sync(self, key: str, remaining: int, rule: str) -> int:
        return await self.run(self.core.sync(key, remaining, rule))

    async def follow(
        self, key: str, status: int, headers: Headers, remaining: Mapping[str, str] = MappingProxyType({})
    ) -> int:
        return await self.run(self.core.follow(key, status, headers, remaining))

    async def call(self, name: str, key: str, *words: str | int) -> Any:
        return await self.run(self.core.call((name, key, *words)))

    async def run(self, flow: Flow[Answer]) -> Answer:
        try:
            effect = next(flow)
            while True:
                try:
                    sent = await self._do(effect)
                except Exception as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    async def _do(self, effect: Effect) -> Any:
        if isinstance(effect, Command):
            return await self._sender.send(effect)
        if isinstance(effect, Beside):
            return self.begin(self.run(effect.flow))
        return await asyncio.sleep(effect.s)
