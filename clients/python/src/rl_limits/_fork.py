"""A forked process must not use what its parent has: connections, places, locks, leased units."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    def after_fork(self) -> None:
        """Forgets what belongs to the parent."""


_ALL: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(one: Forked) -> None:
    _ALL.add(one)


def _after_fork() -> None:
    for one in list(_ALL):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
