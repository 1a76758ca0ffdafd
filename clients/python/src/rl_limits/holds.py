"""Holds as context managers: taken when the block begins, renewed while it runs, settled when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Unpack
from uuid import uuid4

from . import _given as given
from ._commands import LONGEST_S, Cost, Held, Holding, Line, Rules, Turn, to_ms
from ._core import AsyncRunner, Runner
from ._errors import is_undecided
from ._flows import Flow, Pause
from ._replies import Report


class Denied(Exception):
    """A hold was denied; `reply` has the wait."""

    def __init__(self, reply: Report) -> None:
        super().__init__(f"{reply.verdict}, {f'wait {reply.wait_ms} ms' if reply.wait_ms >= 0 else 'no wait helps'}")
        self.reply = reply

    def __reduce__(self) -> tuple[type[Denied], tuple[Report]]:  # a worker of Celery sends it to another process
        return Denied, (self.reply,)


class HoldBase:
    reply: Report

    def __init__(
        self,
        limiter: Runner | AsyncRunner,
        key: str,
        rules: Rules,
        *,
        ttl: float,
        cost: Cost = 1,
        refund: bool = False,
        id: str | None = None,
        wait: float | None = None,
        **line: Unpack[Line],
    ) -> None:
        limiter.core.need_module("hold")
        given.seconds("ttl", ttl, LONGEST_S)
        self._core = limiter.core
        self._held = Held(id or uuid4().hex, to_ms(ttl), refund)
        self._waits = wait is not None
        self._ask = partial(self._core.hold, key, rules, cost, self._held, Turn(wait, **line))
        self.key, self.id = key, self._held.id

    def _ending(self, cost: Cost | None, refund: bool) -> Flow[bool]:
        return self._core.end(self.key, self._held, cost, refund)

    def _giving_back(self) -> Flow[None]:
        return self._core.end_all([self.key], self._held, refund=True)

    def _renewing(self, since_s: float) -> Flow[None]:
        self._ends_s = (time.monotonic() if self._waits else since_s) + self._held.ttl_ms / 1000
        return self._keep_renewing(self._held.ttl_ms / 1000)

    def _keep_renewing(self, ttl_s: float) -> Flow[None]:
        """Renews the hold three times in each `ttl`, and returns when it is lost."""
        while (now_s := time.monotonic()) < self._ends_s:
            yield Pause(min(ttl_s / 3, self._ends_s - now_s))
            asked_s = time.monotonic()
            try:
                lives = yield from self._core.renew(self.key, self.id, ttl_s)
            except Exception:  # the next attempt may find the server again
                continue
            if not lives:
                return
            self._ends_s = asked_s + ttl_s


class Hold(HoldBase):
    """`with limiter.hold(...) as hold:`

    `lost` is set when the hold has ended too early: somebody settled it, or the server could not be reached for `ttl`.
    The work must then stop, because another process may have begun. Leaving the block, also by an exception,
    settles the hold: the charges stand, and slots become free; if the server is away, as soon as it is back.
    Under a `leaky` rule the block begins at its turn.
    """

    def __init__(self, limiter: Runner, key: str, rules: Rules, **how: Unpack[Holding]) -> None:
        super().__init__(limiter, key, rules, **how)
        self._run, self.lost, self._left = limiter.run, threading.Event(), threading.Event()

    def __enter__(self) -> Hold:
        since_s = time.monotonic()
        self.reply = self._take()
        if not self.reply.allowed:
            raise Denied(self.reply)
        try:
            if self.reply.source == "outage":
                self._left.set()
            else:
                threading.Thread(target=self._keep, args=(self._renewing(since_s),), daemon=True).start()
            if self.reply.wait_ms > 0:  # until the turn that a `leaky` rule gives
                time.sleep(self.reply.wait_ms / 1000)
        except BaseException:  # no thread can start, or the sleep is interrupted
            self._left.set()
            self._run(self._giving_back())
            raise
        return self

    def settle(self, *, cost: Cost | None = None) -> bool:
        """Ends the hold now, at its real cost. Says whether the hold was still live. Raises an outage."""
        return self._end(cost, False)

    def refund(self) -> bool:
        """Ends the hold now, and gives all of it back."""
        return self._end(None, True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _without_outages():
            self._end(None, False)

    def _take(self) -> Report:
        try:
            return self._run(self._ask())
        except Exception:
            raise
        except BaseException:  # Ctrl-C, or a time-out of gevent: the server may have taken the hold
            self._run(self._core.give_up([self.key], self.id))
            raise

    def _end(self, cost: Cost | None, refund: bool) -> bool:
        if self._left.is_set():
            return False
        self._left.set()
        return self._run(self._ending(cost, refund))

    def _keep(self, renewing: Flow[None]) -> None:
        with contextlib.suppress(Left):
            self._run(renewing, self._pause)
            if not self._left.is_set() and _limits(self.reply):
                self.lost.set()

    def _pause(self, s: float) -> None:
        if self._left.wait(s):
            raise Left


class Left(BaseException):
    """Ends the thread that renews."""


class AsyncHold(HoldBase):
    """`async with limiter.hold(...) as hold:`, where `lost` is an event of asyncio. The hold is settled even if the
    task is cancelled. Only a loop that runs renews it; reading `lost` tells also without one that `ttl` has passed."""

    def __init__(self, limiter: AsyncRunner, key: str, rules: Rules, **how: Unpack[Holding]) -> None:
        super().__init__(limiter, key, rules, **how)
        self._limiter, self._lost, self._left = limiter, asyncio.Event(), False
        self._keeper: asyncio.Task[None] | None = None

    @property
    def lost(self) -> asyncio.Event:
        self._look()
        return self._lost

    async def __aenter__(self) -> AsyncHold:
        since_s = time.monotonic()
        self.reply = await self._take()
        if not self.reply.allowed:
            raise Denied(self.reply)
        if self.reply.source == "outage":
            self._left = True
        else:
            self._keeper = asyncio.create_task(self._keep(self._renewing(since_s)))
        if self.reply.wait_ms > 0:
            await self._await_turn()
        return self

    async def settle(self, *, cost: Cost | None = None) -> bool:
        return await self._end(cost, False)

    async def refund(self) -> bool:
        return await self._end(None, True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _without_outages():
            await self._end(None, False)

    async def _take(self) -> Report:
        return await self._limiter.take(self._ask(), [self.key], self.id, in_line=self._waits)

    async def _await_turn(self) -> None:
        try:
            await asyncio.sleep(self.reply.wait_ms / 1000)
        except BaseException:
            self._leave()
            await self._limiter.finish(self._limiter.run(self._giving_back()))
            raise

    async def _end(self, cost: Cost | None, refund: bool) -> bool:
        if self._left:
            return False
        self._leave()
        return await self._limiter.finish(self._limiter.run(self._ending(cost, refund)))

    def _leave(self) -> None:
        self._look()
        self._left = True
        if self._keeper and not self._keeper.get_loop().is_closed():
            self._keeper.cancel()

    async def _keep(self, renewing: Flow[None]) -> None:
        await self._limiter.run(renewing)
        self._lose()

    def _look(self) -> None:
        if self._keeper and not self._left and time.monotonic() >= self._ends_s:
            self._lose()

    def _lose(self) -> None:
        if _limits(self.reply):
            with contextlib.suppress(RuntimeError):  # a task of a closed loop waits for it
                self._lost.set()


@contextlib.contextmanager
def _without_outages() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_undecided(error):
            raise


def _limits(report: Report) -> bool:
    """Whether a rule limits the key. If only shadows count, the loss of a hold lets nobody in too early."""
    return report.deciding() is not None
