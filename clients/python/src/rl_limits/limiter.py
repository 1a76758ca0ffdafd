"""The commands of an application, on any client of redis-py or valkey-py: one server, sentinels or a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self, Unpack

from . import _given as given
from ._commands import LONGEST_S, Cost, Limit, Line, Rules, Turn
from ._core import Core
from ._fork import watch
from ._loops import Loop, PerLoop
from ._nodes import Answer, Flow, Nodes, Wiring
from ._options import TIMEOUT_S, Options, Settings, UrlOptions, settings
from ._replies import Reply, Report
from ._threads import Threads
from ._upstream import Headers
from ._url import from_url, most_connections, of_client
from .holds import AsyncHold, Hold, held_for

#: How long `aclose` waits for the clean-ups of cancelled tasks.
CLEAN_UP_S = 0.5


class Common:
    """What both limiters have: how they are made, and what they tell."""

    core: Core
    _asynchronous: ClassVar[bool]

    def _begin(
        self, wiring: Wiring, client: Callable[[], Any], chosen: Settings, timeout_s: float, *, owns: bool = False
    ) -> None:
        raise NotImplementedError

    def _nodes(self) -> Iterable[Nodes]:
        raise NotImplementedError

    def _use(self, client: Any, options: Options, timeout_s: float = TIMEOUT_S) -> None:
        chosen = settings(options)
        most = most_connections(client, chosen.concurrency)
        self._begin(of_client(client), lambda: client, replace(chosen, concurrency=most), timeout_s)

    @classmethod
    def from_url(cls, url: str, **options: Unpack[UrlOptions]) -> Self:
        """Connects to `redis://`, `rediss://`, `unix://`, or `redis+cluster://`. `options` are those of the limiter and
        of redis-py, and `timeout`, 0.25 seconds: for connecting and for a reply."""
        wiring, client, of_limiter, timeout_s = from_url(url, options, asynchronous=cls._asynchronous)
        limiter = cls.__new__(cls)
        limiter._begin(wiring, client, settings(of_limiter), timeout_s, owns=True)
        return limiter

    @classmethod
    def in_process(cls, policies: Mapping[str, Rules] | None = None) -> Self:
        """A limiter that asks no server, for tests: it decides as `outage="local"` does."""
        limiter = cls.__new__(cls)
        limiter._begin(NOWHERE, lambda: None, settings({"outage": "local", "policies": policies}), TIMEOUT_S)
        limiter.core.in_process = True
        return limiter

    @property
    def outages(self) -> int:
        """How many requests got no decision from the server. Settlements and the like are not counted."""
        return self.core.events.outages

    @property
    def given_up(self) -> int:
        """How many holds this process took and could not settle before they ended by themselves."""
        return self.core.unsettled.given_up

    @property
    def away(self) -> bool:
        """Whether the server is away, or any node of a cluster: the limiter then asks it nothing, and probes it."""
        return any(node.away for nodes in self._nodes() for node in nodes.all)


class RateLimiter(Common):
    """A limiter that connects as a client of `redis` or `valkey` does, with connections of its own. The client's
    time-outs are the application's choice; `from_url` has short ones."""

    _asynchronous = False

    def __init__(self, client: Any, **options: Unpack[Options]) -> None:
        self._use(client, options)

    def _begin(
        self, wiring: Wiring, client: Callable[[], Any], chosen: Settings, timeout_s: float, *, owns: bool = False
    ) -> None:
        self.core = Core(chosen)
        self._make_client, self._client, self._owns = client, None, owns
        self._make = partial(Threads, wiring, self.core.events, chosen)
        self._room = self._make()
        watch(self)

    @property
    def client(self) -> Any:
        """A client for other commands: the application's own, or one with the same options."""
        self._client = self._client or self._make_client()
        return self._client

    def close(self) -> None:
        """Ends the limiter's connections and what it does in the background. Another call opens new ones."""
        room, self._room = self._room, self._make()
        self.core.unsettled.close()
        room.close()
        if self._owns and self._client:
            self._client.close()
            self._client = None

    def after_fork(self) -> None:
        self.core.after_fork()
        self._room = self._make()

    def _nodes(self) -> Iterable[Nodes]:
        return [self._room.nodes]

    def run(self, flow: Flow[Answer], pause: Callable[[float], object] = time.sleep) -> Answer:
        return self._room.run(flow, pause)

    def __enter__(self) -> RateLimiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        """Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`."""
        known = self.core.remembered(key, rules, cost)
        return known or self.run(self.core.told(self.core.check(key, rules, cost, meta), rules))

    def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        """Decides without consuming: `RL.PEEK`."""
        return self.run(self.core.peek(key, rules, cost))

    def wait(
        self, key: str, rules: Rules, timeout: float, *, cost: Cost = 1, meta: str | None = None, **line: Unpack[Line]
    ) -> Reply:
        """Waits in line until the request may pass, at most `timeout` seconds: `RL.WAIT`, on a separate connection.
        Flows take turns in proportion to their weights; a higher priority goes first."""
        return self.run(self.core.told(self.core.wait(key, rules, Turn(timeout, **line), cost, meta), rules))

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
        **line: Unpack[Line],
    ) -> Hold:
        """A context manager: holds what the check consumes until the block ends; raises `Denied` after a denial.

        The hold is renewed while this process lives, and ends at most `ttl` seconds after the process dies. `refund`:
        its units then come back. `wait`: seconds to wait in line for the hold, as `wait` does.
        """
        return Hold(self, key, rules, cost, held_for(ttl, refund, id), Turn(wait, **line))

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


class AsyncRateLimiter(Common):
    """A `RateLimiter` for asyncio, that connects as a client of `redis.asyncio` or `valkey.asyncio` does. `timeout`
    bounds each command, in seconds from when it has its place, whatever the time-outs of the client are. It works in
    any event loop: each has connections of its own."""

    _asynchronous = True

    def __init__(self, client: Any, *, timeout: float = TIMEOUT_S, **options: Unpack[Options]) -> None:
        given.seconds("timeout", timeout)
        self._use(client, options, timeout)

    def _begin(
        self, wiring: Wiring, client: Callable[[], Any], chosen: Settings, timeout_s: float, *, owns: bool = False
    ) -> None:
        self.core = Core(chosen)
        self._make_client, self._clients, self._owns = client, PerLoop(client), owns
        self._rooms = PerLoop(partial(self._enter, wiring, chosen, timeout_s))
        watch(self)

    @property
    def client(self) -> Any:
        """A client for other commands: the application's own, or one with the same options for the running loop."""
        return self._clients.get() if self._owns else self._make_client()

    async def aclose(self) -> None:
        """Ends what the limiter has in the running loop, after the clean-ups of cancelled tasks. Another call opens new
        connections."""
        if room := self._rooms.pop():
            await room.close(CLEAN_UP_S)
        self.core.unsettled.close()
        if self._owns and (client := self._clients.pop()):
            await client.aclose()

    def after_fork(self) -> None:
        self.core.after_fork()
        self._rooms.forget()
        self._clients.forget()

    def _enter(self, wiring: Wiring, chosen: Settings, timeout_s: float) -> Loop:
        room = Loop(wiring, self.core.events, chosen, timeout_s)
        if self.core.unsettled.begin():  # what a loop that ended has left
            room.begin_beside(self.core.settle_rest())
        return room

    def _nodes(self) -> Iterable[Nodes]:
        return [room.nodes for room in self._rooms.living()]

    async def run(self, flow: Flow[Answer]) -> Answer:
        return await self._rooms.get().run(flow)

    async def __aenter__(self) -> AsyncRateLimiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def begin(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Runs work beside the task that asks for it."""
        return self._rooms.get().begin(work)

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
        try:
            await asyncio.wait([asking])
        except asyncio.CancelledError:  # the loop ends
            self.core.abandon(keys, id)
            raise
        lost = asking.cancelled() or asking.exception() is not None
        if lost or asking.result().allowed:
            await self.run(self.core.give_up(keys, id, lost))

    async def ask_all(self, asking: Flow[Report]) -> Report:
        """Asks. If keys are checked separately, a denial gives charges back even if the task is cancelled."""
        return await (self.finish(self.run(asking)) if self.core.separately else self.run(asking))

    async def finish(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Runs work to its end, even if the task that waits for it is cancelled."""
        return await asyncio.shield(self.begin(work))

    async def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        known = self.core.remembered(key, rules, cost)
        return known if known else await self.run(self.core.told(self.core.check(key, rules, cost, meta), rules))

    async def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        return await self.run(self.core.peek(key, rules, cost))

    async def wait(
        self, key: str, rules: Rules, timeout: float, *, cost: Cost = 1, meta: str | None = None, **line: Unpack[Line]
    ) -> Reply:
        """Waits in line as `RateLimiter.wait` does. A task that is cancelled leaves the line."""
        return await self.run(self.core.told(self.core.wait(key, rules, Turn(timeout, **line), cost, meta), rules))

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
        **line: Unpack[Line],
    ) -> AsyncHold:
        return AsyncHold(self, key, rules, cost, held_for(ttl, refund, id), Turn(wait, **line))

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


#: A limiter in the process connects to nothing.
NOWHERE = Wiring(dict, {})
