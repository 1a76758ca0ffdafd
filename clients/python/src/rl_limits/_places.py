"""Bounds the commands under way. A command waits for a place because of this process's own load, not of an outage."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from ._errors import Saturated, is_answer


def size(client: Any, concurrency: int) -> int:
    """The number of the client's connections, but at most `concurrency`; if it is unknown, `concurrency`."""
    most = getattr(getattr(client, "connection_pool", None), "max_connections", None)
    return min(concurrency, most) if isinstance(most, int) else concurrency


def saturated(queue_timeout: float) -> Saturated:
    return Saturated(f"no place for a command became free within {queue_timeout:g} s")


class Places:
    """`with places:`"""

    def __init__(self, most: int, queue_timeout: float) -> None:
        self._free = threading.Semaphore(most)
        self._queue_timeout = queue_timeout

    def __enter__(self) -> None:
        if not self._free.acquire(timeout=self._queue_timeout):
            raise saturated(self._queue_timeout)

    def __exit__(self, *_: object) -> None:
        self._free.release()


class AsyncPlaces:
    """`async with places:`, first come, first served.

    A loop that opens many connections at once takes longer for each than a command may take. Therefore only a few
    places are free at first. Every `STEP` replies, errors included, add a place; each command without a reply removes
    one.
    """

    FIRST = 8
    STEP = 32

    def __init__(self, most: int, queue_timeout: float) -> None:
        self._most = most
        self._size = min(most, self.FIRST)
        self._free = asyncio.Semaphore(self._size)
        self._answered = 0
        self._queue_timeout = queue_timeout

    async def __aenter__(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self._queue_timeout):
                await self._free.acquire()
        except TimeoutError:
            raise saturated(self._queue_timeout) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or is_answer(error):
            self._answered += 1
            if self._answered % self.STEP == 0 and self._size < self._most:
                self._size += 1
                self._free.release()
        elif self._size > self.FIRST:
            self._size -= 1
            return
        self._free.release()
