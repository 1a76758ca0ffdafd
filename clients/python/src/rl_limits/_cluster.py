"""The nodes of a cluster. The limiter keeps the map itself, so that what one node does says nothing of another."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from redis.crc import key_slot

from ._commands import Command
from ._errors import UnreadableReply, is_late
from ._events import Events
from ._flows import Beside, Flow, Probe
from ._links import Link, Lost, Node, Wiring
from ._nodes import Nodes
from ._replies import whole

#: How often a request is sent on to another node.
MOST_MOVES = 5
#: The map is not asked for again within this time.
LEARNED_S = 0.1
#: Where a command has its first key.
KEY_AT = {"RL.MCHECK": 2, "EVALSHA": 3, "EVAL": 3}

#: The first and the last slot, and the host and the port of their primary. The host is empty if the node that was
#: asked does not know its own.
Ranges = list[tuple[int, int, str, int]]


class NotCovered(ConnectionError):
    """No node serves the slot of a key."""


class Cluster(Nodes):
    def __init__(self, wiring: Wiring, events: Events, close: Callable[[Link], object]) -> None:
        super().__init__(wiring, events, close)
        self._seeds = [self._at(*seed) for seed in wiring.seeds or ()]
        self._nodes = {seed.name: seed for seed in self._seeds}
        self._slots: list[Node | None] = []
        self._learned_s = 0.0

    @property
    def all(self) -> list[Node]:
        return list(self._nodes.values())

    def send(self, command: Command) -> Flow[Any]:
        key = command.words[KEY_AT.get(str(command.words[0]), 1)]
        slot = key_slot(key if isinstance(key, bytes) else str(key).encode())
        if not self._slots:
            yield from self._begin()
        node, asking = self._slots[slot], False
        for _ in range(MOST_MOVES):
            if node is None:
                break
            try:
                return (yield from self._ask(node, command, asking))
            except Exception as error:
                kind = type(error).__name__
                if kind not in ("MovedError", "AskError"):
                    raise
                asking = kind == "AskError"
                node = self._known(error.host, error.port)  # type: ignore[attr-defined]
                if not asking:
                    self._slots[slot] = node
                    yield Beside(self._learn())
        if time.monotonic() - self._learned_s > LEARNED_S:
            yield Beside(self._learn())
        raise NotCovered(f"no node serves the slot {slot}")

    def _at(self, host: str, port: int) -> Node:
        return self._node(f"{host}:{port}", self._wiring.kind, {**self._wiring.options, "host": host, "port": port})

    def _known(self, host: str, port: int) -> Node:
        host, port = self._wiring.remap((host, port)) if self._wiring.remap else (host, port)
        return self._nodes.get(f"{host}:{port}") or self._at(host, port)

    def _begin(self) -> Flow[None]:
        """The first map, without which no key has a node."""
        error: Exception = NotCovered("no node of the cluster is known")
        for seed in self._seeds:
            try:
                return self._apply((yield from self._ask(seed, MAP)), seed)
            except Exception as failed:
                error = failed.error if isinstance(failed, Lost) else failed
                if is_late(error):  # a request has one time-out
                    break
        raise error

    def _learn(self) -> Flow[None]:
        """A new map, from whichever node answers. Whether the others do is for requests to find out."""
        now_s = time.monotonic()
        if now_s - self._learned_s < LEARNED_S:
            return
        self._learned_s = now_s
        there = [node for node in self.all if not node.away] or [seed for seed in self._seeds if not seed.away]
        for node in there:
            try:
                return self._apply((yield Probe(node, MAP)), node)
            except Exception:
                continue

    def _apply(self, ranges: Ranges, asked: Node) -> None:
        own_host = asked.name.rpartition(":")[0]
        nodes: dict[str, Node] = {}
        slots: list[Node | None] = [None] * 16384
        for first, last, host, port in ranges:
            known = self._known(host or own_host, port)
            node = nodes.setdefault(known.name, known)
            slots[first : last + 1] = [node] * (last + 1 - first)
        before, self._nodes, self._slots = self.all, nodes, slots
        for node in before:
            if nodes.get(node.name) is not node:
                node.forgotten = True
                node.refuse()
                self._back(node)


def _ranges(sent: Any) -> Ranges:
    try:
        return [(whole(first), whole(last), _host(primary[0]), whole(primary[1])) for first, last, primary, *_ in sent]
    except (TypeError, ValueError, IndexError):
        raise UnreadableReply(sent) from None


def _host(sent: Any) -> str:
    host = sent.decode() if isinstance(sent, bytes) else str(sent or "")
    return "" if host == "?" else host


MAP = Command(("CLUSTER", "SLOTS"), _ranges, again=True)
