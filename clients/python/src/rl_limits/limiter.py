"""The commands of an application, on any client of redis-py or valkey-py: one server, sentinels or a cluster."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, Unpack

from . import _given as given
from ._commands import Cost, Holding, Limit, Rules
from ._core import Core
from ._flows import Answer, Flow
from ._fork import watch
from ._links import Wiring
from ._loops import Loop, PerLoop
from ._nodes import Nodes
from ._options import TIMEOUT_S, Options, Settings, UrlOptions, settings
from ._replies import Report
from ._threads import Threads
from ._url import from_url, most_connections, of_client
from .holds import AsyncHold, Hold

#: How long `aclose` waits for the clean-ups of cancelled tasks.
CLEAN_UP_S = 0.5


Given = ParamSpec("Given")


def in_thread(call: Callable[Concatenate[Core, Given], Flow[Answer]]) -> Callable[Concatenate[Any, Given], Answer]:
    """A method of `RateLimiter`."""

    @functools.wraps(call)
    def method(self: RateLimiter, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        return self.run(call(self.core, *given, **named))

    return method


def in_loop(
    call: Callable[Concatenate[Core, Given], Flow[Answer]],
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Answer]]:
    """A method of `AsyncRateLimiter`."""

    @functools.wraps(call)
    async def method(self: AsyncRateLimiter, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        return await self.run(call(self.core, *given, **named))

    return method


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

    check = in_thread(Core.check)
    peek = in_thread(Core.peek)
    wait = in_thread(Core.wait)
    check_all = in_thread(Core.check_all)
    check_any = in_thread(Core.check_any)
    peek_all = in_thread(Core.peek_all)
    settle = in_thread(Core.settle)
    renew = in_thread(Core.renew)
    refund = in_thread(Core.refund)
    reset = in_thread(Core.reset)
    pause = in_thread(Core.pause)
    resume = in_thread(Core.resume)
    plan = in_thread(Core.plan)
    unplan = in_thread(Core.unplan)
    sync = in_thread(Core.sync)
    follow = in_thread(Core.follow)
    call = in_thread(Core.call)

    def hold(self, key: str, rules: Rules, **how: Unpack[Holding]) -> Hold:
        """A context manager: holds what the check consumes until the block ends; raises `Denied` after a denial.

        The hold is renewed while this process lives, and ends at most `ttl` seconds after the process dies. `refund`:
        its units then come back. `wait`: seconds to wait in line for the hold, as `wait` does.
        """
        return Hold(self, key, rules, **how)


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
        self.core.unsettled.place = asyncio.get_running_loop
        self._make_client, self._clients, self._owns = client, PerLoop(client), owns
        self._rooms = PerLoop(partial(self._enter, wiring, chosen, timeout_s), Loop.end)
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
            room.begin_beside(self.core.settle_rest(at_once=True))
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
            self.core.abandon(keys, id)  # if the loop ends meanwhile
            self.begin(self._give_up(asking, keys, id))
            raise

    async def _give_up(self, asking: asyncio.Task[Report], keys: Sequence[str], id: str) -> None:
        """Lets a check run to its end, so that its reply says whether a hold was taken."""
        await asyncio.wait([asking])
        lost = asking.cancelled() or asking.exception() is not None
        if lost or asking.result().allowed:
            await self.run(self.core.give_up(keys, id, lost))
        else:
            self.core.unsettled.forget(keys, id)

    async def ask_all(self, asking: Flow[Report]) -> Report:
        """Asks. If keys are checked separately, a denial gives charges back even if the task is cancelled."""
        return await (self.finish(self.run(asking)) if self.core.separately else self.run(asking))

    async def finish(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Runs work to its end, even if the task that waits for it is cancelled."""
        return await asyncio.shield(self.begin(work))

    check = in_loop(Core.check)
    peek = in_loop(Core.peek)
    wait = in_loop(Core.wait)
    check_any = in_loop(Core.check_any)
    peek_all = in_loop(Core.peek_all)
    settle = in_loop(Core.settle)
    renew = in_loop(Core.renew)
    refund = in_loop(Core.refund)
    reset = in_loop(Core.reset)
    pause = in_loop(Core.pause)
    resume = in_loop(Core.resume)
    plan = in_loop(Core.plan)
    unplan = in_loop(Core.unplan)
    sync = in_loop(Core.sync)
    follow = in_loop(Core.follow)
    call = in_loop(Core.call)

    async def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Report:
        return await self.ask_all(self.core.check_all(limits, cost=cost, meta=meta))

    def hold(self, key: str, rules: Rules, **how: Unpack[Holding]) -> AsyncHold:
        return AsyncHold(self, key, rules, **how)


#: A limiter in the process connects to nothing.
NOWHERE = Wiring(dict, {})
