"""Leases: for a key that is asked more often than one server can decide.

A lease takes units ahead, hands them out in this process, and settles what was used. It takes more units at a time
while they are used up quickly, and fewer otherwise. Units count from when they are leased, and may be used for half of
`ttl` after that. If the process dies, the units that it used of its last lease, at most `most`, come back at the hold's
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from functools import partial
from typing import NamedTuple

from . import _given as given
from ._commands import LONGEST_S, Held, Rules, follow_a_plan, to_ms
from ._core import AsyncRunner, Runner
from ._denials import lasts_ms
from ._errors import is_undecided
from ._flows import Answer, Flow
from ._fork import watch
from ._loops import PerLoop
from ._replies import Reply, Report

#: A lease that lasts less than SHORT_S is too small, one that lasts more than LONG_S too large.
SHORT_S = 0.05
LONG_S = 0.2


class Taken(NamedTuple):
    """A lease of the server."""

    held: Held
    reply: Reply
    units: int
    at_s: float


class Book:
    """What is leased, used and denied. `now_s` is the time on any clock that only goes forward."""

    def __init__(self, ttl_s: float, most: int, follows_a_plan: bool = False) -> None:
        self.ttl_s = ttl_s
        self.most = most
        self._follows_a_plan = follows_a_plan
        self.next_units = 1
        self.taken: Taken | None = None
        self.used = 0
        self._denial: tuple[Reply, int, float, int] | None = None

    def hand_out(self, units: int, now_s: float) -> Reply | None:
        """An answer from what is known here, or None if the server must be asked."""
        taken = self.taken
        if taken and not self.is_due(now_s) and self.used + units <= taken.units:
            self.used += units
            reply = taken.reply
            return Reply("allowed", reply.limit, taken.units - self.used, 0, reply.reset_ms, source="lease")
        if self._denial:
            reply, least, at_s, lasts = self._denial
            ago_ms = int((now_s - at_s) * 1000)
            if units >= least and ago_ms < lasts:
                return reply.later(ago_ms)
        return None

    def is_due(self, now_s: float) -> bool:
        """Whether the lease must be settled now, even if it has units left."""
        return self.taken is not None and now_s >= self.taken.at_s + self.ttl_s / 2

    def close(self, now_s: float) -> tuple[Held, int] | None:
        """Ends the lease. Returns its hold and the units used of it."""
        taken, used = self.taken, self.used
        self.taken, self.used = None, 0
        if taken is None:
            return None
        lasted_s = now_s - taken.at_s
        if lasted_s > LONG_S or used * 2 < taken.units:
            self.next_units = max(1, taken.units // 2)
        elif lasted_s < SHORT_S:
            self.next_units = min(self.most, taken.units * 2)
        return taken.held, used

    def open(self, held: Held, units: int, report: Report, at_s: float) -> None:
        """Notes the server's answer to a request for at least `units`."""
        if report.source != "server":
            return
        if not report.allowed:
            self._denial = report.reply(), units, at_s, lasts_ms(report, self._follows_a_plan)
        elif report.rules:  # the report on an exempt key, which has no holds, has no rules
            self.taken, self.used = Taken(held, report.reply(), report.granted or 0, at_s), units


class LeaseBase:
    def __init__(self, limiter: Runner | AsyncRunner, key: str, rules: Rules, ttl: float, most: int) -> None:
        limiter.core.need_module("a lease")
        given.rules("the lease", rules)
        given.seconds("ttl", ttl, LONGEST_S)
        given.whole("most", most, 1)
        self.key = given.key(key)
        self._rules = rules
        self._core = limiter.core
        self._tells = limiter.core.events.on_decision is not None
        self._new_book = partial(Book, ttl, most, follow_a_plan(rules))

    def _refill(self, book: Book, units: int) -> Flow[Reply]:
        known = book.hand_out(units, time.monotonic())  # another caller may have refilled it
        if known:
            return known
        with contextlib.suppress(Exception):  # a lease that is not settled now is settled later, or ends by itself
            yield from self._close(book)
        at_s, held = time.monotonic(), Held.new(to_ms(book.ttl_s), True)
        report = yield from self._core.lease(self.key, self._rules, units, book.next_units, held)
        book.open(held, units, report, at_s)
        return report.reply()

    def _close(self, book: Book) -> Flow[None]:
        """Settles what was used. Raises no outage."""
        now_s, taken = time.monotonic(), book.taken
        closed = book.close(now_s)
        if taken is None or closed is None:
            return
        held, used = closed
        try:
            found = yield from self._core.end(self.key, held, used, False)
            if used and not found and now_s >= taken.at_s + book.ttl_s:  # it ended by itself: its units came back
                yield from self._core.lease(self.key, self._rules, 1, used, Held.new(held.ttl_ms, False))
        except Exception as error:
            if not is_undecided(error):
                raise

    def _told(self, reply: Reply, began_s: float) -> Reply:
        self._core.tell(reply, [self._rules], (time.monotonic() - began_s) * 1000)
        return reply


class Lease(LeaseBase):
    """`take` answers as `check` does, for any number of threads; `close` gives back what is left. A forked process
    begins with a lease of its own."""

    def __init__(self, limiter: Runner, key: str, rules: Rules, *, ttl: float = 2.0, most: int = 1000) -> None:
        super().__init__(limiter, key, rules, ttl, most)
        self._run = limiter.run
        self.after_fork()
        watch(self)

    def after_fork(self) -> None:
        self._book = self._new_book()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._settles = False

    def take(self, units: int = 1) -> Reply:
        given.units(units)
        if not self._tells:
            return self._take(units)
        began_s = time.monotonic()
        return self._told(self._take(units), began_s)

    def _take(self, units: int) -> Reply:
        with self._lock:
            reply = self._book.hand_out(units, time.monotonic())
            if reply:
                return reply
            if not self._settles:
                with contextlib.suppress(RuntimeError):  # no thread can start now: the next refill tries again
                    threading.Thread(target=self._settle_when_due, daemon=True).start()
                    self._settles = True
            return self._run(self._refill(self._book, units))

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._run(self._close(self._book))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _settle_when_due(self) -> None:
        while not self._closed.wait(self._book.ttl_s / 4):
            with self._lock, contextlib.suppress(Exception):
                if self._book.is_due(time.monotonic()):
                    self._run(self._close(self._book))


class OfLoop(NamedTuple):
    """What an `AsyncLease` has in one event loop."""

    book: Book
    lock: asyncio.Lock
    settler: list[asyncio.Task[None]]


class AsyncLease(LeaseBase):
    """A `Lease` for tasks: in each event loop it leases apart. A cancelled caller leaves the lease whole. A loop that
    ends as that of `asyncio.run` does settles its lease; that of a loop that is only closed goes to the next one."""

    def __init__(self, limiter: AsyncRunner, key: str, rules: Rules, *, ttl: float = 2.0, most: int = 1000) -> None:
        super().__init__(limiter, key, rules, ttl, most)
        self._limiter = limiter
        #: Those of loops that were closed.
        self._books: list[Book] = []
        self._mine = PerLoop(self._enter, lambda mine: self._books.append(mine.book))
        watch(self)

    def after_fork(self) -> None:
        self._mine.forget()
        self._books.clear()

    def _enter(self) -> OfLoop:
        try:
            book = self._books.pop()
        except IndexError:
            book = self._new_book()
        mine = OfLoop(book, asyncio.Lock(), [])
        mine.settler.append(asyncio.create_task(self._settle_when_due(mine)))
        return mine

    async def take(self, units: int = 1) -> Reply:
        given.units(units)
        began_s, mine = time.monotonic(), self._mine.get()
        reply = mine.book.hand_out(units, began_s)
        if reply is None:
            reply = await self._limiter.finish(self._alone(mine, self._refill(mine.book, units)))
        return self._told(reply, began_s) if self._tells else reply

    async def aclose(self) -> None:
        mine = self._mine.pop()
        if mine is None:
            return
        for settler in mine.settler:
            settler.cancel()
        await self._limiter.finish(self._alone(mine, self._close(mine.book)))

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _settle_when_due(self, mine: OfLoop) -> None:
        ends = False
        while not ends:
            try:
                await asyncio.sleep(mine.book.ttl_s / 4)
            except asyncio.CancelledError:  # at the end of its loop
                ends = True
            if ends or mine.book.is_due(time.monotonic()):
                with contextlib.suppress(Exception):
                    await self._limiter.finish(self._alone(mine, self._close(mine.book)))

    async def _alone(self, mine: OfLoop, flow: Flow[Answer]) -> Answer:
        async with mine.lock:
            return await self._limiter.run(flow)
