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

import threading
import time
from collections.abc import Callable
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

from ._commands import Command
from ._errors import is_answer, is_late, is_stale
from ._events import Events
from ._flows import Beside, Exchange, Flow, Pause, Probe
from ._links import Away, Link, Lost, Node, Wiring

#: How long a request that took a connection in use for alive leaves to the first probe before it is answered.
FIRST_S = 0.05


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
            if self.closed:
                raise ConnectionError("the limiter is closed")
            if node.away:
                yield from self._seek(node)
                raise node.failure()
            try:
                reply = yield Exchange(node, command, fresh, asking)
                if node.name in self._events.gone and not node.away:  # in a loop that ended meanwhile
                    self._events.outage(False, node.name, node.error)
                return reply
            except Away:
                raise node.failure() from None
            except Lost as lost:
                if self._leaves(node, lost):
                    yield from self._seek(node)
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
        node.end_all()
        self._events.failed(lost.error)
        self._events.outage(True, node.name, lost.error)
        return True

    def _seek(self, node: Node) -> Flow[None]:
        """Begins to probe a node that is away, unless it is probed: the last attempt may have found no thread."""
        with self._lock:
            if not node.away or (node.prober and getgeneratorstate(node.prober) != GEN_CLOSED):
                return
            node.prober = self._bring_back(node)
        yield Beside(node.prober)

    def _bring_back(self, node: Node) -> Flow[None]:
        """Probes a node until it answers."""
        while not self.closed:
            yield Pause(node.next_pause_s())
            yield from self._learn()
            if node.forgotten or self.closed:
                return
            try:
                yield Probe(node)
            except Exception as failed:
                if not is_answer(failed):
                    node.error = failed.error if isinstance(failed, Lost) else failed
                    self._events.failed(node.error)
                    continue
            return self._back(node)

    def _back(self, node: Node) -> None:
        with self._lock:
            if not node.away:
                return
            node.prober = None
            node.come_back(time.monotonic())
        self._events.outage(False, node.name, node.error)

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
