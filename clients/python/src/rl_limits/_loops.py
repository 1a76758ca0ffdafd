"""Sends and receives for the tasks of an event loop. Each loop has connections and places of its own."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

from ._cluster import Cluster
from ._commands import Command
from ._errors import is_in_order
from ._events import Events
from ._flows import Answer, Beside, Effect, Exchange, Flow, Probe
from ._links import ASKING, LOOK_S, PING, Away, Link, Lost, Node, Wiring, lost, lost_connecting, question
from ._nodes import Nodes
from ._options import Settings
from ._threads import ASK_S, saturated

Made = TypeVar("Made")


class PerLoop(Generic[Made]):
    """Something that each event loop has for itself. The next loop ends what a closed loop had."""

    def __init__(self, make: Callable[[], Made], end: Callable[[Made], object] = lambda made: None) -> None:
        self._make, self._end = make, end
        self.forget()

    def forget(self) -> None:
        self._made: dict[asyncio.AbstractEventLoop, Made] = {}
        self._last: tuple[asyncio.AbstractEventLoop | None, Made | None] = None, None

    def get(self) -> Made:
        loop = asyncio.get_running_loop()
        last, made = self._last
        if last is not loop or made is None:
            made = self._made.get(loop)
            if made is None:
                self._end_closed()
                made = self._made[loop] = self._make()
            self._last = loop, made
        return made

    def _end_closed(self) -> None:
        for loop in list(self._made):
            if loop.is_closed() and (made := self._made.pop(loop, None)) is not None:  # another thread may be faster
                self._end(made)

    def pop(self) -> Made | None:
        """Takes what the running loop has from it."""
        self._last = None, None
        return self._made.pop(asyncio.get_running_loop(), None)

    def living(self) -> list[Made]:
        return [made for loop, made in list(self._made.items()) if not loop.is_closed()]


class Loop:
    """All that one event loop has."""

    def __init__(self, wiring: Wiring, events: Events, chosen: Settings, timeout_s: float) -> None:
        options = {**wiring.options, "socket_timeout": None, "socket_connect_timeout": None}  # `Bound` bounds
        wiring = wiring._replace(options=options)
        self.nodes: Nodes = (Nodes if wiring.seeds is None else Cluster)(wiring, events, self._close)
        self._loop, self._places = asyncio.get_running_loop(), asyncio.Semaphore(chosen.concurrency)
        self._queue_timeout, self._timeout_s = chosen.queue_timeout, timeout_s
        self._under_way: set[asyncio.Task[Any]] = set()
        #: Probes and the like, which nobody waits for.
        self._background: set[asyncio.Task[Any]] = set()

    async def run(self, flow: Flow[Answer]) -> Answer:
        try:
            effect = next(flow)
            while True:
                try:
                    sent = await self._do(effect)
                except Exception as error:
                    if self._loop.is_closed():
                        raise
                    effect = flow.throw(error)
                else:
                    effect = flow.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        finally:
            flow.close()

    async def _do(self, effect: Effect) -> Any:
        if isinstance(effect, Exchange):
            return await self.exchange(*effect)
        if isinstance(effect, Command):
            return await self.run(self.nodes.send(effect))
        if isinstance(effect, Beside):
            return self.begin_beside(effect.flow)
        if isinstance(effect, Probe):
            return await self.probe(*effect)
        return await asyncio.sleep(effect.s)

    def begin(self, work: Coroutine[Any, Any, Made]) -> asyncio.Task[Made]:
        """Runs work beside the task that asks for it."""
        return _kept(work, self._under_way)

    def begin_beside(self, flow: Flow[None]) -> None:
        """Runs what nobody waits for."""
        _kept(self.run(flow), self._background).add_done_callback(lambda _: flow.close())

    async def exchange(self, node: Node, command: Command, fresh: bool = False, asking: bool = False) -> Any:
        if command.wait_s is not None:
            return await self._wait(node, command)
        if self._places.locked():
            await self._queue()
        else:
            await self._places.acquire()  # at once
        try:
            if node.away:
                raise Away
            tried = Try()
            try:
                async with Bound(self._timeout_s, node):
                    link = None if fresh else await self._link(node)
                    link = link or await self._open(node, tried)
                    if asking:
                        await self._ask(node, link, ASKING, tried)
                    return await self._ask(node, link, command, tried)
            except TimeoutError:
                raise self._late(node, tried) from None
        finally:
            self._places.release()

    async def _queue(self) -> None:
        """Waits for a place, first come, first served."""
        try:
            async with asyncio.timeout(self._queue_timeout):
                await self._places.acquire()
        except TimeoutError:
            raise saturated(self._queue_timeout) from None

    async def probe(self, node: Node, command: Command) -> Any:
        tried = Try()
        try:
            async with Bound(self._timeout_s, None):
                link = await self._open(node, tried)
                if command is not PING:
                    link.epoch = -1  # it is not kept
                return await self._ask(node, link, command, tried)
        except TimeoutError:
            raise self._late(node, tried) from None

    async def close(self, within_s: float) -> None:
        """Waits for the clean-ups of cancelled tasks, then ends everything."""
        late_s = time.monotonic() + within_s
        while self._under_way and time.monotonic() < late_s:
            await asyncio.wait(self._under_way, timeout=within_s)
        for task in [*self._under_way, *self._background]:
            task.cancel()
        self.nodes.close()
        await asyncio.sleep(0)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=within_s / 2)

    def end(self) -> None:
        """Ends what a closed loop left. Flows learn it; connections are shut: only their loop could close them."""
        for task in [*self._under_way, *self._background]:
            with contextlib.suppress(Exception):
                task.get_coro().close()
        for link in [link for node in self.nodes.all for link in node.idle]:
            with contextlib.suppress(Exception):
                link.connection._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def _link(self, node: Node) -> Link | None:
        """A connection that has not ended, as far as one can see."""
        while link := node.link():
            if time.monotonic() - link.used_s < LOOK_S:
                return link
            try:
                await asyncio.sleep(0)  # lets the loop see the end of a connection
                if await link.connection.read_response(timeout=0) is None:
                    return link
            except Exception:
                pass
            except BaseException:
                self._close(link)
                raise
            self._close(link)
        return None

    async def _open(self, node: Node, tried: Try) -> Link:
        tried.stage, tried.first, tried.sent_s = "connect", True, time.monotonic()
        link = Link(node.connection(), node.epoch)
        try:
            await link.connection.connect()
        except Exception as error:
            self._close(link)
            raise lost_connecting(error, None, tried.sent_s) from None
        except BaseException:
            self._close(link)
            raise
        return link

    async def _ask(self, node: Node, link: Link, command: Command, tried: Try) -> Any:
        connection = link.connection
        tried.stage, tried.first, tried.sent_s = "write", not link.replied, time.monotonic()
        try:
            await connection.send_command(*command.words)
            tried.stage = "read"
            reply = command.read(await connection.read_response())
        except Exception as error:
            if is_in_order(error):
                self._keep(node, link)
                raise
            self._close(link)
            raise lost(error, tried.stage, link, None, tried.sent_s) from None
        except BaseException:  # a time-out, or the caller's cancellation: the reply may still come
            self._close(link)
            raise
        self._keep(node, link)
        return reply

    def _late(self, node: Node, tried: Try) -> Exception:
        """What a request that was ended raises: its node went away, or it took too long."""
        if node.away:
            return Lost(node.failure(), tried.stage, False, tried.sent_s)
        what = "connection" if tried.stage == "connect" else "reply"
        error = TimeoutError(f"no {what} within {self._timeout_s * 1000:g} ms")
        return Lost(error, tried.stage, tried.first, tried.sent_s)

    async def _wait(self, node: Node, command: Command) -> Any:
        """A wait has a connection of its own. Cancelling the task closes it, and so leaves the line."""
        tried = Try()
        try:
            async with Bound(self._timeout_s, node):
                link = await self._open(node, tried)
            asking = self.begin(self._ask_else(command))
            try:
                async with Bound((command.wait_s or 0) + self._timeout_s, node):
                    link.epoch = -1  # it is not kept
                    return await self._ask(node, link, command, tried)
            finally:
                asking.cancel()
        except TimeoutError:
            raise self._late(node, tried) from None

    async def _ask_else(self, command: Command) -> None:
        """Finds out, by another request, whether the node is still there: a server that is gone does not say so."""
        while True:
            await asyncio.sleep(ASK_S)
            with contextlib.suppress(Exception):
                await self.run(self.nodes.send(question(command)))

    def _keep(self, node: Node, link: Link) -> None:
        if not node.keep(link, time.monotonic()):
            self._close(link)

    def _close(self, link: Link) -> None:
        if not self._loop.is_closed():  # else this task is being thrown away, and its connection with it
            _kept(link.connection.disconnect(nowait=True), self._under_way)


def _kept(work: Coroutine[Any, Any, Made], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[Made]:
    """A task that lives until it is done: a loop itself keeps only weak references."""
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class Try:
    """How far a request has come."""

    __slots__ = ("first", "sent_s", "stage")

    def __init__(self) -> None:
        self.stage, self.first, self.sent_s = "connect", True, math.inf


class Bound:
    """`async with Bound(s, node):` raises TimeoutError after `s` seconds in which the loop could look for replies, or
    when the node goes away. A busy loop is late for each slice; this delay does not count."""

    SLICES = 10

    __slots__ = ("_left", "_loop", "_node", "_scope", "_slice_s", "_timer")

    def __init__(self, s: float, node: Node | None) -> None:
        self._slice_s = s / self.SLICES
        self._left = self.SLICES
        self._node = node
        self._scope = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        self._loop = asyncio.get_running_loop()
        if self._node:
            self._node.under_way.add(self)
        self._wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._node:
            self._node.under_way.discard(self)
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
