"""Is the server there? A *node* is what a request goes to: the server, or a primary of a cluster.

A node is *answering* or *away*. It goes away when a request waited its whole time-out while no reply came from it, when
a connection could not be made, and when one ended before its first reply. There is no count of failures. While a node
is away, requests to it are answered without it at once, and one probe at a time goes to it: a new connection and a
`PING`. A probe that is answered brings the node back.

    answering --- silent, too slow, unreachable ---> away --- a probe is answered ---> answering
                                                      |  ^
                                                      +--+ probes after 0, 50, 100, 200, 400, 800, 800 ... ms

What is here sends nothing: these are flows, generators that yield what to do next. `_threads` and `_loops` do it.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from ._commands import Command
from ._errors import UnreadableReply, is_answer, is_garbled, is_late, is_lost, is_stale
from ._events import Events

Answer = TypeVar("Answer")

#: The pauses before each probe. The last one repeats.
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
#: How much longer a pause may be, so that many limiters do not probe at once.
JITTER = 0.25
#: How long a request that took a connection in use for alive leaves to the first probe before it is answered.
FIRST_S = 0.05
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


class Away(Exception):
    """The node went away while a request was under way."""


class Exchange(NamedTuple):
    """Yielded to send a command to a node and get its reply. The error may be `Lost` or `Away`."""

    node: Node
    command: Command
    fresh: bool = False
    """On a new connection."""
    asking: bool = False
    """After `ASKING`, which lets a slot's next node answer for a key that has moved already."""


class Probe(NamedTuple):
    """Yielded to connect to a node and send `PING`."""

    node: Node


class Pause(NamedTuple):
    """Yielded to sleep."""

    s: float


class Beside(NamedTuple):
    """Yielded to run another flow without waiting for it."""

    flow: Flow[None]


Effect = Command | Exchange | Probe | Pause | Beside
Flow = Generator[Effect, Any, Answer]


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
        self.gone_at = 0
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


class Nodes:
    """One server."""

    def __init__(self, wiring: Wiring, events: Events, close: Callable[[Link], object]) -> None:
        """`close` closes a connection."""
        self._wiring, self._events, self._close = wiring, events, close
        self._lock = threading.Lock()
        self.closed = False
        self.one = self._node(_name(wiring.options), wiring.kind, wiring.options)

    @property
    def all(self) -> list[Node]:
        return [self.one]

    def send(self, command: Command) -> Flow[Any]:
        return self._ask(self.one, command)

    def _node(self, name: str, kind: Callable[..., Any], options: dict[str, Any]) -> Node:
        return Node(name, kind, options, self._close)

    def _ask(self, node: Node, command: Command, asking: bool = False) -> Flow[Any]:
        fresh = False
        while True:
            if node.away or self.closed:
                raise ConnectionError("the limiter is closed") if self.closed else node.failure()
            try:
                return (yield Exchange(node, command, fresh, asking))
            except Away:
                raise node.failure() from None
            except Lost as lost:
                if self._leaves(node, lost):
                    yield Beside(self._bring_back(node))
                    if is_late(lost.error) and not lost.first:  # perhaps only its connections were dropped
                        yield Pause(FIRST_S)
                elif not fresh and (lost.stage == "write" or (command.again and not is_late(lost.error))):
                    fresh = True
                    continue
                raise
            except Exception as error:
                if is_stale(error) and node.is_stale(time.monotonic()):
                    node.refuse()
                raise

    def _leaves(self, node: Node, lost: Lost) -> bool:
        """Whether a lost request makes its node go away now."""
        if lost.stage != "connect" and (
            node.replied_s >= lost.sent_s if is_late(lost.error) else not lost.first  # it answers others
        ):
            return False
        with self._lock:
            node.error = lost.error
            if node.away or node.forgotten or self.closed:
                return False
            node.leave(time.monotonic())
            node.gone_at = self._events.outages
        node.end_all()
        self._events.failed(lost.error)
        self._events.outage(True, node.name, lost.error, 0)
        return True

    def _bring_back(self, node: Node) -> Flow[None]:
        """Probes a node until it answers."""
        while not self.closed:
            yield Pause(node.next_pause_s())
            yield from self._learn()
            if node.forgotten or self.closed:
                return
            try:
                yield Probe(node)
                return self._back(node)
            except Exception as failed:
                node.error = failed.error if isinstance(failed, Lost) else failed
                self._events.failed(node.error)

    def _back(self, node: Node) -> None:
        with self._lock:
            if not node.away:
                return
            node.come_back(time.monotonic())
        self._events.outage(False, node.name, node.error, self._events.outages - node.gone_at)

    def _learn(self) -> Flow[None]:
        """Asks a cluster for its map."""
        yield from ()

    def close(self) -> None:
        self.closed = True
        for node in self.all:
            node.refuse()
            node.end_all()


def _name(options: dict[str, Any]) -> str:
    if "path" in options:
        return str(options["path"])
    if "host" in options:
        return f"{options['host']}:{options.get('port', 6379)}"
    return str(getattr(options.get("connection_pool"), "service_name", "the server"))
