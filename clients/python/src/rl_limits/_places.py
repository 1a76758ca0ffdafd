"""How many commands may be under way at once. What waits for a place is this process's own load, not an outage."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from ._errors import Saturated


def size(client: Any, concurrency: int) -> int:
    """As many as the client has connections, if it tells, and at most `concurrency`."""
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
    """`async with places:`, first come, first served."""

    def __init__(self, most: int, queue_timeout: float) -> None:
        self._free = asyncio.Semaphore(most)
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

    async def __aexit__(self, *_: object) -> None:
        self._free.release()
