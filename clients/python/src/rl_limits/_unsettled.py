"""Settlements that met an outage. They are tried again until they succeed, or the hold has ended by itself."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ._commands import Held, Words
from ._errors import LOG, is_undecided
from ._flows import Flow, Pause
from ._replies import flag

#: The most settlements to keep: a new one evicts the oldest.
MOST = 1000
#: The pauses before each try. The first is for what a loop that ended has left.
PAUSES_S = (0.0, 0.1, 0.2, 0.4, 0.8)
#: A settler that did not try for this time no longer runs.
IDLE_S = 2.0
#: A check that was lost may reach the server later than its settlement: so often a settlement that finds no hold is
#: sent again.
LATE_TRIES = 4


class Pending(NamedTuple):
    id: str
    words: Words
    until_s: float
    tries: int
    """How often to try while the server has no such hold."""


class Unsettled:
    def __init__(self) -> None:
        #: How many were given up.
        self.given_up = 0
        #: What the caller runs in: an event loop. All threads have one settler.
        self.place: Callable[[], object] = lambda: Unsettled
        self.after_fork()

    def after_fork(self) -> None:
        """What a parent has not settled is the parent's."""
        self._pending: OrderedDict[tuple[str, str], Pending] = OrderedDict()
        self._lock = threading.Lock()
        #: The places in which a settler waits. One of them tries, unless its loop was closed or no longer runs.
        self._settlers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last_try: tuple[object, float] = None, 0.0

    def add(self, key: str, held: Held, words: Words, late: bool) -> None:
        until_s = time.monotonic() + held.ttl_ms / 1000
        with self._lock:
            self._pending[key, held.id] = Pending(held.id, words, until_s, LATE_TRIES if late else 1)
            if len(self._pending) > MOST:
                self._give_up(self._pending.popitem(last=False)[1])

    def forget(self, keys: Iterable[str], id: str) -> None:
        with self._lock:
            for key in keys:
                self._pending.pop((key, id), None)

    def begin(self) -> bool:
        """Whether the caller must begin to settle."""
        with self._lock:
            return bool(self._pending) and self.place() not in self._settlers

    def settle(
        self, send: Callable[[Words, Callable[[Any], bool], bool], Flow[bool]], at_once: bool = False
    ) -> Flow[None]:
        """Tries until nothing is left."""
        place, failures = self.place(), 0 if at_once else 1
        with self._lock:
            if place in self._settlers:
                return
            self._settlers.add(place)
        try:
            while self._goes_on(place):
                yield Pause(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
                failures += 1
                for name, pending in list(self._pending.items()) if self._has_turn(place) else ():
                    self._last_try = place, time.monotonic()
                    try:
                        found = yield from send(pending.words, flag, True)
                    except Exception as error:
                        if is_undecided(error) and time.monotonic() < pending.until_s:
                            continue
                        self._end(name, pending, given_up=True)
                    else:
                        self._tried(name, pending, found)
                        failures = failures if pending.tries > 1 else 1
        except BaseException:
            self._settlers.discard(place)
            raise

    def _goes_on(self, place: object) -> bool:
        with self._lock:
            if not self._pending:
                self._settlers.discard(place)
            return bool(self._pending)

    def _has_turn(self, place: object) -> bool:
        last, at_s = self._last_try
        return last is place or last not in self._settlers or time.monotonic() - at_s > IDLE_S

    def close(self) -> None:
        """Gives up all."""
        for name, pending in list(self._pending.items()):
            self._end(name, pending, given_up=pending.tries == 1)

    def _tried(self, name: tuple[str, str], pending: Pending, found: bool) -> None:
        if found or pending.tries == 1:
            self._end(name, pending)
            return
        with self._lock:
            if self._pending.get(name) is pending:
                self._pending[name] = pending._replace(tries=pending.tries - 1)

    def _end(self, name: tuple[str, str], pending: Pending, *, given_up: bool = False) -> None:
        with self._lock:
            if self._pending.get(name) is not pending:
                return
            del self._pending[name]
            if given_up:
                self._give_up(pending)

    def _give_up(self, pending: Pending) -> None:
        self.given_up += 1
        LOG.warning("the hold %s was not settled, and ends by itself", pending.id)
