"""Sends commands. Each waits for a place, then has a time-out. A connection whose reply is not read is closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial
from types import TracebackType
from typing import Any

from ._breaker import Breaker
from ._commands import Command
from ._errors import NotAsked, Saturated, is_exhausted
from ._options import Settings
from ._places import AsyncPlaces, Places, saturated, size
from ._waiting import ask, ask_async, is_cluster, question

#: The interval at which to look whether a pool that others use up has a connection again.
LOOK_S = 0.005


class Sender:
    """Sends by a client for threads, or by a function that makes the client."""

    def __init__(self, client: Any, breaker: Breaker, chosen: Settings) -> None:
        self._client = client
        self._breaker = breaker
        self._making = threading.Lock()
        self._places = Places(size(client, chosen.concurrency), chosen.queue_timeout)

    @property
    def client(self) -> Any:
        return self._made(always=True)

    def send(self, command: Command) -> Any:
        if command.wait_s is not None:
            return ask(self.client, command, lambda: self.send(Command(question(command), always=True)))
        with self._places:
            client = self._made(command.always)
            if self._breaker.away and (pool := getattr(client, "connection_pool", None)):
                with contextlib.suppress(Exception):  # not every pool can close only its idle connections
                    pool.disconnect(inuse_connections=False)
            try:
                return client.execute_command(*command.words)
            except Exception as error:
                if is_exhausted(error):
                    raise Saturated("the client's pool has no connection left") from error
                raise

    def close(self) -> None:
        if not callable(self._client):
            self._client.close()

    def _made(self, always: bool) -> Any:
        """The client. While one thread makes it, the others wait. If the limiter has then stopped asking, they do not
        try."""
        if callable(self._client):
            with self._making:
                self._may_ask(always)
                if callable(self._client):
                    self._client = self._client()
        self._may_ask(always)
        return self._client

    def _may_ask(self, always: bool) -> None:
        if self._breaker.away and not always:
            raise NotAsked


class AsyncSender:
    """Sends by a client of asyncio."""

    def __init__(self, client: Any, breaker: Breaker, chosen: Settings, timeout_s: float) -> None:
        self.client = client
        self.timeout_s = timeout_s
        self._breaker = breaker
        self._queue_timeout = chosen.queue_timeout
        self._places = AsyncPlaces(size(client, chosen.concurrency), chosen.queue_timeout)
        self._under_way: set[Bound] = set()
        self._clustered = is_cluster(client)
        self._mapping = asyncio.Lock()
        breaker.stopped = self._end_all

    async def send(self, command: Command) -> Any:
        if command.wait_s is not None:
            ask_else = partial(self.send, Command(question(command), always=True))
            return await ask_async(self.client, command, ask_else, partial(Bound, self.timeout_s))
        async with self._places:
            pool = getattr(self.client, "connection_pool", None)
            if pool is not None:
                await self._find_connection(pool)
            if self._breaker.away and not command.always:
                raise NotAsked
            if self._breaker.away and pool is not None:  # the first try connects anew
                with contextlib.suppress(Exception):
                    await pool.disconnect(inuse_connections=False)
            bound = Bound(self.timeout_s)
            self._under_way.add(bound)
            try:
                async with bound:
                    return await (self._ask_cluster if self._clustered else self.client.execute_command)(*command.words)
            except Exception as error:
                if is_exhausted(error):
                    raise Saturated("the client's pool has no connection left") from error
                raise
            finally:
                self._under_way.discard(bound)

    async def close(self) -> None:
        await self.client.aclose()

    async def _ask_cluster(self, *words: Any) -> Any:
        """When several tasks fetch the map of the cluster at once, or a node fails, redis-py 8.1 closes connections
        that other tasks are opening. So one task fetches the map, and a closed connection counts as no reply."""
        async with self._mapping:
            await self.client.initialize()
        try:
            return await self.client.execute_command(*words)
        except AttributeError as error:
            raise ConnectionError("the client closed its connection amid a command") from error

    async def _find_connection(self, pool: Any) -> None:
        """The time-out of a command must not run while the application's own commands have all connections."""
        can_get = getattr(pool, "can_get_connection", None)
        if can_get is None or can_get():
            return
        late_s = time.monotonic() + self._queue_timeout
        while not can_get():
            if time.monotonic() > late_s:
                raise saturated(self._queue_timeout)
            await asyncio.sleep(LOOK_S)

    def _end_all(self) -> None:
        """Ends the commands under way, so that the limiter answers at once."""
        for bound in self._under_way:
            bound.end()


class Bound:
    """`async with Bound(s):` raises TimeoutError after `s` seconds in which the loop could look for replies. A busy
    loop is late for each slice; this delay does not count."""

    SLICES = 10

    __slots__ = ("_left", "_loop", "_scope", "_slice_s", "_timer")

    def __init__(self, s: float) -> None:
        self._slice_s = s / self.SLICES
        self._left = self.SLICES
        self._scope = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        await self._scope.__aexit__(kind, error, trace)

    def end(self) -> None:
        """Ends the time now, unless the reply has arrived: the loop calls its reader first."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._scope.reschedule(self._loop.time())

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._slice_s, self._look)

    def _look(self) -> None:
        self._left -= 1
        if self._left:
            self._wait()
        else:
            self.end()
