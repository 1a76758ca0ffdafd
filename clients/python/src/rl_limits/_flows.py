"""Flows: generators that yield what to do next, and get its result or error. `_threads` and `_loops` do it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from ._commands import Command
from ._links import PING, Node

Answer = TypeVar("Answer")


class Exchange(NamedTuple):
    """Yielded to send a command to a node and get its reply. The error may be `Lost` or `Away`."""

    node: Node
    command: Command
    fresh: bool = False
    """On a new connection."""
    asking: bool = False
    """After `ASKING`, which lets a slot's next node answer for a key that has moved already."""


class Probe(NamedTuple):
    """Yielded to connect to a node, whatever is known of it, and send a command: within a time-out, even if the
    application's client has none."""

    node: Node
    command: Command = PING


class Pause(NamedTuple):
    """Yielded to sleep."""

    s: float


class Beside(NamedTuple):
    """Yielded to run another flow without waiting for it."""

    flow: Flow[None]


Effect = Command | Exchange | Probe | Pause | Beside
Flow = Generator[Effect, Any, Answer]
