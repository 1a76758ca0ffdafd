"""Storages of `limits` 5, and so of Flask-Limiter and SlowAPI: importing this module registers their schemes.

| strategy                 | rule                                     |
|--------------------------|------------------------------------------|
| `fixed-window`           | `fixed:1000000000/Ns,align=first`        |
| `moving-window`          | `log:LIMIT/Ns`                           |
| `sliding-window-counter` | `window:LIMIT/Ns`                        |
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Unpack

from limits.aio.storage import MovingWindowSupport as AsyncMovingWindowSupport
from limits.aio.storage import SlidingWindowCounterSupport as AsyncSlidingWindowCounterSupport
from limits.aio.storage import Storage as AsyncStorage
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage
from limits.storage.base import TimestampedSlidingWindow

from ._core import Core
from ._errors import is_outage
from ._flows import Flow
from ._options import UrlOptions
from ._replies import Reply, Report, record
from .limiter import AsyncRateLimiter, RateLimiter

#: A limit that no client reaches: `limits` needs only a counter, and decides itself.
MOST = 1_000_000_000

#: The wait for a block without an end, in seconds: try again tomorrow.
DAY_S = 86_400.0

SCHEMES = ["ratelimit+redis", "ratelimit+rediss", "ratelimit+unix", "ratelimit+redis+cluster"]
ASYNC_SCHEMES = [f"async+{scheme}" for scheme in SCHEMES]

PREFIX = "rl"
KEY_TYPE = "ratelimit"


class Counting:
    """What both storages do. Each method runs a flow; that of the asynchronous storage returns an awaitable."""

    limiter: Any
    key_prefix: str
    _prefix_of_urls: str
    _kind: Any

    def _begin(self, uri: str, key_prefix: str, limiter: Any, options: UrlOptions) -> None:
        self.key_prefix = key_prefix
        self.limiter = limiter or self._kind.from_url(uri.removeprefix(self._prefix_of_urls), **options)
        self.limiter.core.need_module("a storage of limits")

    @property
    def base_exceptions(self) -> type[Exception]:
        return Exception  # neither library has one base class for all errors, cluster errors included

    def incr(self, key: str, expiry: int, amount: int = 1) -> Any:
        return self._check(key, _counter(expiry), amount, _hits)

    def get(self, key: str) -> Any:
        return self._counted(key, lambda hits, left_s: hits)

    def get_expiry(self, key: str) -> Any:
        return self._counted(key, lambda hits, left_s: time.time() + left_s)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        return self._check(key, f"log:{limit}/{expiry}s", amount, lambda reply: reply.allowed)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> Any:
        asking = self.limiter.core.peek_all(self._key(key), f"log:{limit}/{expiry}s")
        return self._run(asking, lambda report: _entries(report, limit, expiry))

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> Any:
        return self._check(key, _window(limit, expiry), amount, lambda reply: reply.allowed)

    def get_sliding_window(self, key: str, expiry: int) -> Any:
        asking = self.limiter.core.peek(self._key(key), _window(MOST, expiry))
        return self._run(asking, lambda reply: _weighted(reply, expiry))

    def clear(self, key: str) -> Any:
        return self._run(self.limiter.core.reset(self._key(key)), lambda was: None)

    def clear_sliding_window(self, key: str, expiry: int) -> Any:
        return self.clear(key)

    def check(self) -> Any:
        return self.limiter.run(self._answers())

    def _answers(self) -> Flow[bool]:
        try:
            yield from self.limiter.core.call("RL.PEEK", self._key(""), "1/s")
        except Exception:
            return False
        return True

    def _check(self, key: str, rule: str, amount: int, read: Callable[[Reply], Any]) -> Any:
        return self._run(self.limiter.core.check(self._key(key), rule, cost=amount), read)

    def _run(self, flow: Flow[Any], read: Callable[[Any], Any]) -> Any:
        def reading() -> Flow[Any]:
            return read((yield from flow))

        return self.limiter.run(reading())

    def _counted(self, key: str, read: Callable[[int, float], Any]) -> Any:
        """Reads the hits of a fixed window, and the seconds until it ends."""

        def asking() -> Flow[Any]:
            core: Core = self.limiter.core
            try:
                counted = _counted((yield from core.call("RL.INFO", self._key(key))))
            except Exception as error:
                if core.mode == "raise" or not is_outage(error):
                    raise
                units, left_ms = core.local.counted(self._key(key))  # what counts in this process
                counted = units * core.local.processes, left_ms / 1000
            return read(*counted)

        return self.limiter.run(asking())

    def _key(self, key: str) -> str:
        return f"{self.key_prefix}:{key}"


class RateLimitStorage(Counting, Storage, MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """A storage for `ratelimit+redis://host:port/db`, `ratelimit+rediss://`, `ratelimit+unix:///path` and, for
    clusters, `ratelimit+redis+cluster://`. Options are those of `RateLimiter.from_url`. `limiter` takes a limiter of
    yours, for sentinels or valkey-py."""

    STORAGE_SCHEME = SCHEMES
    _kind, _prefix_of_urls = RateLimiter, "ratelimit+"

    def __init__(
        self,
        uri: str,
        wrap_exceptions: bool = False,
        key_prefix: str = PREFIX,
        limiter: RateLimiter | None = None,
        **options: Unpack[UrlOptions],
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._begin(uri, key_prefix, limiter, options)

    def reset(self) -> int:
        """Forgets what all keys of this storage have consumed. Blocks stay. This scans all keys of the server."""
        keys: Iterator[str] = self.limiter.client.scan_iter(_pattern(self.key_prefix), 1000, KEY_TYPE)
        return sum(self.limiter.reset(key) for key in keys)


class AsyncRateLimitStorage(
    Counting, AsyncStorage, AsyncMovingWindowSupport, AsyncSlidingWindowCounterSupport, TimestampedSlidingWindow
):
    """A `RateLimitStorage` for the strategies in `limits.aio`: the same schemes after `async+`, clients of
    `redis.asyncio`."""

    STORAGE_SCHEME = ASYNC_SCHEMES
    _kind, _prefix_of_urls = AsyncRateLimiter, "async+ratelimit+"

    def __init__(
        self,
        uri: str,
        wrap_exceptions: bool = False,
        key_prefix: str = PREFIX,
        limiter: AsyncRateLimiter | None = None,
        **options: Unpack[UrlOptions],
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._begin(uri, key_prefix, limiter, options)

    async def reset(self) -> int:
        keys: AsyncIterator[str] = self.limiter.client.scan_iter(_pattern(self.key_prefix), 1000, KEY_TYPE)
        return sum([await self.limiter.reset(key) async for key in keys])


def _pattern(prefix: str) -> str:
    """A pattern for SCAN: this very prefix, then anything."""
    return "".join(f"\\{char}" if char in r"\*?[]" else char for char in prefix) + ":*"


def _counter(expiry: int) -> str:
    return f"fixed:{MOST}/{expiry}s,align=first"


def _window(limit: int, expiry: int) -> str:
    return f"window:{limit}/{expiry}s"


def _hits(reply: Reply) -> int:
    """The hits that a rule with the limit `MOST` has counted: more than any limit if the key is blocked, 0 if it is
    exempt. In an outage the limit is only a share of `MOST`, so each unit counts as several hits."""
    if reply.limit <= 0:
        return 0 if reply.allowed else MOST
    return math.ceil((reply.limit - reply.remaining) * MOST / reply.limit)


def _counted(info: Any) -> tuple[int, float]:
    if info is None:
        return 0, 0.0
    fields = record(info)
    access = fields["access"] and record(fields["access"])
    if access and access["kind"] == "blocked":
        return MOST, access["ttl_ms"] / 1000 if access["ttl_ms"] >= 0 else DAY_S
    for state in map(record, fields["states"]):
        if not access and state["rule"].startswith(f"fixed:{MOST}/"):
            return state["consumed"], state["reset_ms"] / 1000
    return 0, 0.0


def _entries(report: Report, limit: int, expiry: int) -> tuple[float, int]:
    """The time of the oldest entry that counts, and the number of entries that count. For a blocked key, a time from
    which `limits` computes the end of the block."""
    now = time.time()
    if report.verdict == "blocked":
        wait_s = report.wait_ms / 1000 if report.wait_ms >= 0 else DAY_S
        return now + wait_s - expiry, limit
    consumed = sum(rule.limit - rule.remaining for rule in report.rules)  # of the one rule; exempt keys have none
    return (now + report.rules[0].next_ms / 1000 - expiry if consumed else now), consumed


def _weighted(reply: Reply, expiry: int) -> tuple[int, float, int, float]:
    """The units that count, as if all were in the present window: the server has weighted those of the previous one.
    `limits` would round their weight down, and so promise units that the server denies."""
    reset_s = reply.reset_ms / 1000
    if reply.verdict == "blocked":  # the longest time that `limits` shows: it takes the time modulo the window
        last = math.nextafter(expiry, 0)
        reset_s = min(reset_s, last) if reset_s >= 0 else last
    return 0, 0.0, _hits(reply), max(0.0, reset_s)
