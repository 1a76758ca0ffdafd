"""A client of a cluster whose commands end in time, however many nodes do not answer.

If one does not answer, redis-py asks the others for the map of the cluster, one after the other, a time-out each, while
other threads wait for their turn to do that. Here all that a command does shares one deadline of its thread.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Connection, ConnectionPool, RedisCluster, TimeoutError


class Deadline(threading.local):
    _at_s = math.inf

    @contextmanager
    def within(self, s: float) -> Iterator[None]:
        self._at_s = time.monotonic() + s
        try:
            yield
        finally:
            self._at_s = math.inf

    def cut(self, timeout_s: float | None) -> float | None:
        """What is left of the time, but at most `timeout_s`."""
        if math.isinf(self._at_s):
            return timeout_s
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no time is left to ask another node of the cluster")
        return left_s if timeout_s is None else min(timeout_s, left_s)


DEADLINE = Deadline()


class BoundedConnection(Connection):
    def _connect(self) -> Any:
        usual_s = self.socket_connect_timeout
        self.socket_connect_timeout = DEADLINE.cut(usual_s)
        try:
            return super()._connect()  # type: ignore[no-untyped-call]
        finally:
            self.socket_connect_timeout = usual_s

    def read_response(self, *args: Any, **options: Any) -> Any:
        if self._sock:
            self._sock.settimeout(DEADLINE.cut(self.socket_timeout))
        return super().read_response(*args, **options)


@functools.cache
def bounded(kind: Any) -> Any:
    """`Connection`, or that of TLS, with a deadline."""
    return type(f"Bounded{kind.__name__}", (BoundedConnection, kind), {})


class BoundedPool(ConnectionPool):
    def __init__(self, connection_class: Any = Connection, **options: Any) -> None:
        super().__init__(connection_class=bounded(connection_class), **options)


class BoundedCluster(RedisCluster):
    def __init__(self, *args: Any, deadline_s: float, **options: Any) -> None:
        self._deadline_s = deadline_s
        with DEADLINE.within(deadline_s):
            super().__init__(*args, connection_pool_class=BoundedPool, **options)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        with DEADLINE.within(self._deadline_s):
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
