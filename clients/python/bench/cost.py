#!/usr/bin/env python3
"""What a check through this package costs: its calls a second, and those of redis-py alone with the same command, in
turns in one run. From one caller, from eight processes, and from one with asyncio.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "conformance/suite"))

import redis
import redis.asyncio
import servers

from rl_limits import AsyncRateLimiter, RateLimiter

RULE = "bucket:1000000/s"
TURNS, TURN_S = 10, 0.5
CALLS = 20


def ours(url: str) -> Callable[[], object]:
    limiter = RateLimiter.from_url(url, timeout=5)
    return lambda: limiter.check("key", RULE)


def alone(url: str) -> Callable[[], object]:
    client = redis.Redis.from_url(url)
    return lambda: client.execute_command("RL.CHECK", "key", RULE)


def ours_async(url: str) -> Callable[[], object]:
    limiter = AsyncRateLimiter.from_url(url, timeout=5)
    return lambda: limiter.check("key", RULE)


def alone_async(url: str) -> Callable[[], object]:
    client = redis.asyncio.Redis.from_url(url)
    return lambda: client.execute_command("RL.CHECK", "key", RULE)


def counted(call: Callable[[], object], until_s: float) -> int:
    calls = 0
    while time.monotonic() < until_s:
        for _ in range(CALLS):
            call()
        calls += CALLS
    return calls


async def counted_async(call: Callable[[], object], until_s: float) -> int:
    calls = 0
    while time.monotonic() < until_s:
        for _ in range(CALLS):
            await call()  # type: ignore[misc]
        calls += CALLS
    return calls


def in_turns(url: str, begin_s: float) -> list[int]:
    """The calls of this package, then of redis-py. All processes take the same turns."""
    calls, found = (ours(url), alone(url)), [0, 0]
    for call in calls:
        call()
    for turn in range(TURNS):
        time.sleep(max(0.0, begin_s + turn * TURN_S - time.monotonic()))
        found[turn % 2] += counted(calls[turn % 2], begin_s + (turn + 1) * TURN_S)
    return found


async def in_turns_async(url: str) -> list[int]:
    calls, found = (ours_async(url), alone_async(url)), [0, 0]
    for turn in range(TURNS):
        found[turn % 2] += await counted_async(calls[turn % 2], time.monotonic() + TURN_S)
    return found


def measured(server: servers.Server) -> Iterator[tuple[str, list[list[int]]]]:
    for processes in (1, 8):
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            begin_s = time.monotonic() + 8  # all have started by then
            yield f"{processes} processes", pool.starmap(in_turns, [(server.url, begin_s)] * processes, 1)
    yield "asyncio", [asyncio.run(in_turns_async(server.url))]


def main() -> None:
    with servers.start() as server:
        for name, found in measured(server):
            ours, alone = (sum(one[who] for one in found) / (TURNS / 2 * TURN_S) for who in (0, 1))
            print(f"{name:12} {ours:9,.0f} of {alone:9,.0f} a second: {ours / alone:.2f}")


if __name__ == "__main__":
    main()
