"""Sends and receives for threads. Each command waits for a place, then has its connection to itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from ._cluster import Cluster
from ._commands import Command
from ._errors import Saturated, is_in_order
from ._events import Events
from ._flows import Answer, Beside, Effect, Exchange, Flow, Probe
from ._links import ASKING, LOOK_S, PING, Away, Link, Lost, Node, Wiring, lost, lost_connecting, question
from ._nodes import Nodes
from ._options import Settings

#: A wait looks at this interval whether its node went away.
SLICE_S = 0.25
#: After this time in line, the node is asked something else, because a server that is gone does not say so.
ASK_S = 5.0
TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
PROBE_S = 1.0


class Threads:
    """All that a process has: after a fork the child makes its own."""

    def __init__(self, wiring: Wiring, events: Events, chosen: Settings) -> None:
        self.nodes: Nodes = (Nodes if wiring.seeds is None else Cluster)(wiring, events, _close)
        self._places = threading.Semaphore(chosen.concurrency)
        self._queue_timeout = chosen.queue_timeout
        #: The time-outs of a probe that the application's client lacks: else a silent server would keep it for ever.
        self._bounds = {name: PROBE_S for name in TIMEOUTS if not wiring.options.get(name)}

    def run(self, flow: Flow[Answer], pause: Callable[[float], object] = time.sleep) -> Answer:
        try:
            effect = next(flow)
            while True:
                try:
                    sent = self._do(effect, pause)
                except Exception as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(sent)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        finally:
            flow.close()

    def _do(self, effect: Effect, pause: Callable[[float], object]) -> Any:
        if isinstance(effect, Exchange):
            return self.exchange(*effect)
        if isinstance(effect, Command):
            return self.run(self.nodes.send(effect))
        if isinstance(effect, Beside):
            try:
                threading.Thread(target=self.run, args=(effect.flow,), daemon=True).start()
            except RuntimeError:  # the process has all the threads it may have, or ends
                effect.flow.close()
            return None
        if isinstance(effect, Probe):
            return self.probe(*effect)
        return pause(effect.s)

    def exchange(self, node: Node, command: Command, fresh: bool = False, asking: bool = False) -> Any:
        if command.wait_s is not None:
            return self._wait(node, command)
        if not self._places.acquire(timeout=self._queue_timeout):
            raise saturated(self._queue_timeout)
        try:
            if node.away:
                raise Away
            link = None if fresh else self._link(node)
            link = link or _open(node)
            if asking:
                _ask(node, link, ASKING)
            return _ask(node, link, command)
        finally:
            self._places.release()

    def probe(self, node: Node, command: Command) -> Any:
        link = _open(node, **self._bounds)
        if self._bounds or command is not PING:
            link.epoch = -1  # it is not kept
        return _ask(node, link, command)

    def close(self) -> None:
        self.nodes.close()

    def _link(self, node: Node) -> Link | None:
        """A connection that has not ended, as far as one can see."""
        while link := node.link():
            if time.monotonic() - link.used_s < LOOK_S:
                return link
            try:
                if not link.connection.can_read(timeout=0):
                    return link
            except Exception:
                pass
            _close(link)
        return None

    def _wait(self, node: Node, command: Command) -> Any:
        """A wait has a connection of its own. Interrupting the call closes it, and so leaves the line."""
        link, sent_s = _open(node), time.monotonic()
        connection = link.connection
        timeout_s = connection.socket_timeout or ASK_S
        late_s, ask_s = sent_s + (command.wait_s or 0) + timeout_s, sent_s + ASK_S
        try:
            connection.send_command(*command.words)
            while not connection.can_read(timeout=SLICE_S):
                now_s = time.monotonic()
                if node.away:
                    raise Away
                if now_s >= late_s:
                    raise TimeoutError("no reply to a wait")
                if now_s >= ask_s:
                    ask_s = now_s + ASK_S
                    with contextlib.suppress(Exception):  # the node goes away if it does not answer this either
                        self.run(self.nodes.send(question(command)))
            return command.read(connection.read_response())
        except (Away, Saturated, Lost):
            raise
        except Exception as error:
            raise lost(error, "read", link, timeout_s, sent_s) from None
        finally:
            connection.disconnect()


def saturated(queue_timeout: float) -> Saturated:
    return Saturated(f"no place for a command became free within {queue_timeout:g} s")


def _open(node: Node, **more: Any) -> Link:
    began_s = time.monotonic()
    link = Link(node.connection(**more), node.epoch)
    try:
        link.connection.connect()
    except Exception as error:
        _close(link)
        raise lost_connecting(error, link.connection.socket_connect_timeout, began_s) from None
    return link


def _ask(node: Node, link: Link, command: Command) -> Any:
    connection, stage, sent_s = link.connection, "write", time.monotonic()
    try:
        connection.send_command(*command.words)
        stage = "read"
        reply = command.read(connection.read_response())
    except Exception as error:
        if is_in_order(error):
            _keep(node, link)
            raise
        _close(link)
        raise lost(error, stage, link, connection.socket_timeout, sent_s) from None
    except BaseException:  # Ctrl-C, or a time-out of gevent: the reply may still come
        _close(link)
        raise
    _keep(node, link)
    return reply


def _keep(node: Node, link: Link) -> None:
    if not node.keep(link, time.monotonic()):
        _close(link)


def _close(link: Link) -> None:
    link.connection.disconnect()
