"""Settlements that met an outage. They are tried again until they succeed, or the hold has ended by itself."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from ._commands import Held, Words
from ._errors import LOG, is_undecided
from ._flows import Flow, Pause
from ._replies import flag

#: The most settlements to keep: a new one evicts the oldest.
MOST = 1000
#: The pauses between the tries.
PAUSES_S = (0.1, 0.2, 0.4, 0.8)
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
        self.after_fork()

    def after_fork(self) -> None:
        """What a parent has not settled is the parent's."""
        self._pending: OrderedDict[tuple[str, str], Pending] = OrderedDict()
        self._lock = threading.Lock()
        self._runs = False

    def add(self, key: str, held: Held, words: Words, late: bool) -> None:
        until_s = time.monotonic() + held.ttl_ms / 1000
        with self._lock:
            self._pending[key, held.id] = Pending(held.id, words, until_s, LATE_TRIES if late else 1)
            if len(self._pending) > MOST:
                self._give_up(self._pending.popitem(last=False)[1])

    def begin(self) -> bool:
        """Whether the caller must begin to settle."""
        with self._lock:
            begins = not self._runs and bool(self._pending)
            self._runs = self._runs or begins
            return begins

    def settle(self, send: Callable[[Words, Callable[[Any], bool], bool], Flow[bool]]) -> Flow[None]:
        """Tries until nothing is left."""
        failures = 0
        try:
            while self._goes_on():
                yield Pause(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
                failures += 1
                for name, pending in list(self._pending.items()):
                    try:
                        found = yield from send(pending.words, flag, True)
                    except Exception as error:
                        if is_undecided(error) and time.monotonic() < pending.until_s:
                            continue
                        self._end(name, pending, given_up=True)
                    else:
                        self._tried(name, pending, found)
                        failures = failures if pending.tries > 1 else 0
        except BaseException:
            self._runs = False
            raise

    def _goes_on(self) -> bool:
        with self._lock:
            self._runs = bool(self._pending)
            return self._runs

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
