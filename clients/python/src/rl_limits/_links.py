"""Connections to one node, and what a request that got no reply says of it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ._commands import Command
from ._errors import UnreadableReply, is_answer, is_garbled, is_late, is_lost

#: The pauses before each probe. The last one repeats.
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
#: How much longer a pause may be, so that many limiters do not probe at once.
JITTER = 0.25
#: A node that goes away again within this time is probed as if it had stayed away.
SOON_S = 10.0
#: A connection idle for LOOK_S is looked at before use: it may have ended. One idle for OLD_S is replaced.
LOOK_S = 0.02
OLD_S = 60.0
#: How often READONLY and the like close a node's connections.
STALE_S = 1.0


class Wiring(NamedTuple):
    """How to make connections: the class and the options of a client's own."""

    kind: Callable[..., Any]
    options: dict[str, Any]
    seeds: list[tuple[str, int]] | None = None
    """The nodes of a cluster that are known at first, or None for one server."""
    remap: Callable[[tuple[str, int]], tuple[str, int]] | None = None


class Link:
    """A connection."""

    __slots__ = ("connection", "epoch", "replied", "used_s")

    def __init__(self, connection: Any, epoch: int) -> None:
        self.connection, self.epoch, self.replied, self.used_s = connection, epoch, False, 0.0


class Lost(Exception):
    """A request that got no reply."""

    def __init__(self, error: Exception, stage: str, first: bool, sent_s: float) -> None:
        self.error = error
        self.stage = stage
        """`connect`: no connection was made. `write`: nothing was written. `read`: the server may have the request."""
        self.first = first
        """Whether the connection had not replied before."""
        self.sent_s = sent_s


class Away(Exception):
    """The node went away while a request was under way."""


class Node:
    def __init__(
        self, name: str, kind: Callable[..., Any], options: dict[str, Any], close: Callable[[Link], object]
    ) -> None:
        self.name, self.close = name, close
        # No library waits or tries again by itself.
        self._kind, self._options = kind, {**options, "retry": None, "retry_on_error": [], "retry_on_timeout": False}
        self.away = False
        self.forgotten = False
        self.error: Exception = ConnectionError(name)
        #: When the last reply arrived in time.
        self.replied_s = -math.inf
        #: Connections that nobody uses, the last used at the end.
        self.idle: list[Link] = []
        #: Connections of older epochs are not used again.
        self.epoch = 0
        #: What ends a request under way, with asyncio.
        self.under_way: set[Any] = set()
        #: The flow that probes the node.
        self.prober: Generator[Any, Any, None] | None = None
        self._step = 0
        self._back_s = -math.inf
        self._stale_s = -math.inf

    def connection(self, **more: Any) -> Any:
        return self._kind(**{**self._options, **more})

    def link(self) -> Link | None:
        """A connection that was used not long ago."""
        now_s = time.monotonic()
        while self.idle:
            try:
                link = self.idle.pop()
            except IndexError:  # another thread was faster
                return None
            if link.epoch == self.epoch and now_s - link.used_s < OLD_S:
                return link
            self.close(link)
        return None

    def keep(self, link: Link, now_s: float) -> bool:
        """Takes back a connection that replied. Says whether it may be used again."""
        self.replied_s = link.used_s = now_s
        link.replied = True
        if link.epoch != self.epoch or self.forgotten:
            return False
        self.idle.append(link)
        return True

    def failure(self) -> Exception:
        """Why the node is away."""
        return self.error.with_traceback(None)

    def next_pause_s(self) -> float:
        s = PAUSES_S[min(self._step, len(PAUSES_S) - 1)]
        self._step += 1
        return s * random.uniform(1, 1 + JITTER)

    def leave(self, now_s: float) -> None:
        self.away = True
        if now_s - self._back_s > SOON_S:
            self._step = 0
        self.refuse()

    def come_back(self, now_s: float) -> None:
        self.away = False
        self._back_s = self.replied_s = now_s

    def refuse(self) -> None:
        """Uses no present connection again."""
        self.epoch += 1
        while self.idle:
            self.close(self.idle.pop())

    def end_all(self) -> None:
        for bound in list(self.under_way):
            bound.end()

    def is_stale(self, now_s: float) -> bool:
        """Whether to look for another primary now."""
        if now_s - self._stale_s < STALE_S:
            return False
        self._stale_s = now_s
        return True


def lost_connecting(error: Exception, timeout_s: float | None, began_s: float) -> Exception:
    """What to raise if no connection was made."""
    if is_late(error) and timeout_s:
        error = type(error)(f"no connection within {timeout_s * 1000:g} ms")
    cause = error.__context__
    if isinstance(cause, ConnectionRefusedError) and "refused" not in str(error):  # asyncio does not say so
        error = type(error)(f"{error} Connection refused.")
    if is_garbled(error):
        error = UnreadableReply(error)
    elif not is_lost(error) and not is_answer(error):
        return error
    return Lost(error, "connect", True, began_s)


def lost(error: Exception, stage: str, link: Link, timeout_s: float | None, sent_s: float) -> Exception:
    """What to raise if a request failed."""
    if is_garbled(error):
        return UnreadableReply(error)
    if not is_lost(error):
        return error
    if is_late(error) and timeout_s:
        error = type(error)(f"no reply within {timeout_s * 1000:g} ms")
    return Lost(error, stage, not link.replied, sent_s)


def question(command: Command) -> Command:
    """A command that a sound server answers at once, for the same key as a wait."""
    return Command(("RL.PEEK", command.words[1], "1/s"), _anything, again=True)


def _anything(sent: Any) -> Any:
    return sent


ASKING = Command(("ASKING",), _anything)
PING = Command(("PING",), _anything)
