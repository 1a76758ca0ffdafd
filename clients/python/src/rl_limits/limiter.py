"""The commands of an application, on any client of redis-py or valkey-py: one server, sentinels or a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

from ._commands import Command, Cost, Limit, Rules
from ._core import Core, Flow, Options
from ._replies import Reply, Report
from ._url import TIMEOUT_S, connector
from ._waiting import ask, ask_async
from .holds import AsyncHold, Hold, held_for

Answer = TypeVar("Answer")


class Counters:
    """What both limiters tell of an outage."""

    core: Core

    @property
    def outages(self) -> int:
        """How many requests were answered without the server, or with its absence."""
        return self.core.breaker.outages

    @property
    def away(self) -> bool:
        """Whether the limiter has stopped asking, and only tries once a second."""
        return self.core.breaker.away


class RateLimiter(Counters):
    """On a client of `redis` or `valkey`, whose time-outs and retries are the application's choice; `from_url` makes a
    client with short ones. A function that makes the client is called when first needed: a `RedisCluster` connects at
    once, and cannot be made while its cluster is away."""

    def __init__(self, client: Any, **options: Unpack[Options]) -> None:
        self._client = client
        self.core = Core(**options)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> RateLimiter:
        """Connects to `redis://`, `rediss://`, `unix://`, or `redis+cluster://`, with 250 ms for connecting and for a
        reply, and one try. `options` are those of the limiter and of redis-py."""
        connect, options = connector(url, options, asynchronous=False)
        return cls(connect, **options)

    @property
    def client(self) -> Any:
        if callable(self._client):
            self._client = self._client()
        return self._client

    def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        """Decides, and consumes from every rule if all of them let the request pass: `RL.CHECK`."""
        return self.core.remembered(key, rules, cost) or self.run(self.core.check(key, rules, cost, meta))

    def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        """Decides without consuming: `RL.PEEK`."""
        return self.run(self.core.peek(key, rules, cost))

    def wait(self, key: str, rules: Rules, timeout: float, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        """Waits in line until the request may pass, at most `timeout` seconds: `RL.WAIT`, on a connection of its
        own."""
        return self.run(self.core.wait(key, rules, timeout, cost, meta))

    def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Report:
        """Decides over one or several keys, consumes from all or from none, and reports on each rule: `FULL`."""
        return self.run(self.core.check_all(limits, cost, meta))

    def peek_all(self, key: str, rules: Rules) -> Report:
        """Reports on each rule of a key without consuming."""
        return self.run(self.core.peek_all(key, rules))

    def give_back(self, report: Report) -> None:
        """Gives back all that an allowed `check_all` has consumed."""
        return self.run(self.core.give_back(report))

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
    ) -> Hold:
        """A context manager: holds what the check consumes until the block ends, and raises `Denied` if it may not.

        The hold ends `ttl` seconds after this process dies; until then it is renewed. `refund`: its units then come
        back. `wait`: seconds to wait in line for it.
        """
        return Hold(self, key, rules, cost, held_for(ttl, refund, id), wait)

    def settle(self, key: str, id: str, *, cost: Cost | None = None, refund: bool = False) -> bool:
        """Ends a hold: its charges stand, are corrected to `cost`, or come back. Says whether there was one."""
        return self.run(self.core.settle(key, id, cost, refund))

    def renew(self, key: str, id: str, ttl: float) -> bool:
        """Moves the end of a hold to `ttl` seconds from now. Says whether there was one."""
        return self.run(self.core.renew(key, id, round(ttl * 1000)))

    def refund(self, key: str, units: int, rules: Rules = ()) -> int:
        """Gives units back to the states of some rules, or of all; returns the most that one of them got."""
        return self.run(self.core.refund(key, units, rules))

    def reset(self, key: str) -> bool:
        """Forgets what was consumed, and says whether there was anything. Blocks, exemptions and the history stay."""
        return self.run(self.core.reset(key))

    def call(self, name: str, key: str, *words: str | int) -> Any:
        """Sends any other command whose first argument is its key, such as `RL.INFO`."""
        return self.run(self.core.send((name, key, *words), lambda reply: reply))

    def run(self, flow: Flow[Answer], pause: Callable[[float], object] = time.sleep) -> Answer:
        try:
            effect = next(flow)
            while True:
                try:
                    sent = self._send(effect) if isinstance(effect, Command) else pause(effect.s)
                except Exception as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    def _send(self, command: Command) -> Any:
        return self.client.execute_command(*command.words) if command.wait_s is None else ask(self.client, command)


class AsyncRateLimiter(Counters):
    """A `RateLimiter` on a client of `redis.asyncio` or `valkey.asyncio`. `timeout` bounds each command, in seconds,
    whatever the time-outs and retries of the client are."""

    def __init__(self, client: Any, *, timeout: float = TIMEOUT_S, **options: Unpack[Options]) -> None:
        self.client = client
        self.timeout = timeout
        self.core = Core(**options)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> AsyncRateLimiter:
        connect, options = connector(url, options, asynchronous=True)
        return cls(connect(), **options)

    async def check(self, key: str, rules: Rules, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        known = self.core.remembered(key, rules, cost)
        return known if known else await self.run(self.core.check(key, rules, cost, meta))

    async def peek(self, key: str, rules: Rules, *, cost: Cost = 1) -> Reply:
        return await self.run(self.core.peek(key, rules, cost))

    async def wait(self, key: str, rules: Rules, timeout: float, *, cost: Cost = 1, meta: str | None = None) -> Reply:
        """Waits in line as `RateLimiter.wait` does. A task that is cancelled leaves the line."""
        return await self.run(self.core.wait(key, rules, timeout, cost, meta))

    async def check_all(self, limits: Sequence[Limit], *, cost: Cost = 1, meta: str | None = None) -> Report:
        return await self.run(self.core.check_all(limits, cost, meta))

    async def peek_all(self, key: str, rules: Rules) -> Report:
        return await self.run(self.core.peek_all(key, rules))

    async def give_back(self, report: Report) -> None:
        return await self.run(self.core.give_back(report))

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
    ) -> AsyncHold:
        return AsyncHold(self, key, rules, cost, held_for(ttl, refund, id), wait)

    async def settle(self, key: str, id: str, *, cost: Cost | None = None, refund: bool = False) -> bool:
        return await self.run(self.core.settle(key, id, cost, refund))

    async def renew(self, key: str, id: str, ttl: float) -> bool:
        return await self.run(self.core.renew(key, id, round(ttl * 1000)))

    async def refund(self, key: str, units: int, rules: Rules = ()) -> int:
        return await self.run(self.core.refund(key, units, rules))

    async def reset(self, key: str) -> bool:
        return await self.run(self.core.reset(key))

    async def call(self, name: str, key: str, *words: str | int) -> Any:
        return await self.run(self.core.send((name, key, *words), lambda reply: reply))

    async def run(self, flow: Flow[Answer]) -> Answer:
        try:
            effect = next(flow)
            while True:
                try:
                    sent = await (self._send(effect) if isinstance(effect, Command) else asyncio.sleep(effect.s))
                except Exception as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer

    async def _send(self, command: Command) -> Any:
        if command.wait_s is not None:
            return await ask_async(self.client, command)
        async with asyncio.timeout(self.timeout):
            return await self.client.execute_command(*command.words)
