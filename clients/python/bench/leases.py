#!/usr/bin/env python3
"""One hot key, asked by a hundred limiters with a connection each: by `RL.CHECK`, by leases, with denials remembered.
Then one limiter that remembers the denials of one key, and of many.

It prints decisions a second, and the units that passed divided by the units that the limit allows (the rate times the
time, plus the burst).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "conformance/suite"))

import servers

from rl_limits import AsyncLease, AsyncRateLimiter, RateLimiter, Reply

CONNECTIONS = 100
SECONDS = 5
RATE, BURST = 20_000, 2_000
RULE = f"bucket:{RATE}/s,burst={BURST}"

Take = Callable[[], Awaitable[Reply]]


async def measure(name: str, takes: list[Take], rate: int = RATE) -> None:
    began, asked, passed = time.monotonic(), 0, 0

    async def client(take: Take) -> None:
        nonlocal asked, passed
        while time.monotonic() < began + SECONDS:
            for _ in range(10):
                reply = await take()
                passed += reply.allowed
            asked += 10
            await asyncio.sleep(0)  # lets the others run

    await asyncio.gather(*map(client, takes))
    lasted_s = time.monotonic() - began
    part = passed / (rate * lasted_s + BURST)
    print(f"{name:20} {asked / lasted_s:9,.0f} a second, {passed / lasted_s:7,.0f} passed, {part:.3f} of the limit")


def measure_denials(server: servers.Server, keys: int) -> None:
    """One limiter without asyncio, whose keys are denied in turn."""
    limiter = RateLimiter.from_url(server.url, remember_denials=keys)
    names = [f"key:{n}" for n in range(keys)]
    for name in names * 2:
        limiter.check(name, "1/h")
    rounds, began = 1_000_000 // keys, time.perf_counter()
    for _ in range(rounds):
        for name in names:
            limiter.check(name, "1/h")
    lasted_s = time.perf_counter() - began
    print(f"denials of {keys:,} keys, one limiter: {rounds * keys / lasted_s:,.0f} a second")


async def main() -> None:
    with servers.start() as server:

        def limiters(**options: int) -> list[AsyncRateLimiter]:
            patient = {"timeout": 5, "socket_timeout": 5, "socket_connect_timeout": 5}
            return [AsyncRateLimiter.from_url(server.url, **patient, **options) for _ in range(CONNECTIONS)]

        def check(limiter: AsyncRateLimiter, key: str, rule: str = RULE) -> Take:
            return lambda: limiter.check(key, rule)

        await measure("RL.CHECK", [check(limiter, "plain") for limiter in limiters()])
        leases = [AsyncLease(limiter, "leased", RULE) for limiter in limiters()]
        await measure("leases", [lease.take for lease in leases])
        for lease in leases:
            await lease.aclose()
        remembering = limiters(remember_denials=1000)
        await measure("denials remembered", [check(limiter, "denied", f"{BURST}/h") for limiter in remembering], 0)
        for keys in (1, 10_000):
            measure_denials(server, keys)


if __name__ == "__main__":
    asyncio.run(main())
