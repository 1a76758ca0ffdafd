#!/usr/bin/env python3
"""The driver of `rl_limits.AsyncRateLimiter` on redis.asyncio. Each call runs in a task."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from rl_limits import AsyncHold, AsyncLease, AsyncRateLimiter

import python_calls as calls

LIMITERS: dict[str, AsyncRateLimiter] = {}
HOLDS: dict[str, AsyncHold] = {}
LEASES: dict[str, AsyncLease] = {}
TASKS: dict[Any, asyncio.Task[None]] = {}


async def make(call: dict[str, Any]) -> Any:
    name, given = call["call"], calls.arguments(call)
    if name == "cancel":
        return TASKS[call["of"]].cancel() and None
    if name == "new_loop":
        return await asyncio.to_thread(asyncio.run, all_of(call["calls"]))
    if name == "limiter":
        if "url" in call:
            LIMITERS[call["limiter"]] = AsyncRateLimiter.from_url(call["url"], **calls.options(call))
        else:
            LIMITERS[call["limiter"]] = AsyncRateLimiter.in_process(**calls.arguments(call.get("options", {})))
        return None
    if name in ("leave", "hold_settle", "hold_refund", "lost"):
        return await of_hold(HOLDS[call["hold"]], name, given)
    if name == "take":
        return await LEASES[call["lease"]].take(**given)
    if name == "give_up":
        return await LEASES[call["lease"]].aclose()
    limiter = LIMITERS[call["limiter"]]
    if name == "lease":
        LEASES[call["lease"]] = AsyncLease(limiter, **given)
        return None
    if name == "state":
        return {"away": limiter.away, "outages": limiter.outages}
    if name == "close":
        return await limiter.aclose()
    method, first, given = calls.method(name, given)
    made = getattr(limiter, method)(*first, **given)
    if name != "enter":
        return await made
    HOLDS[call["hold"]] = await made.__aenter__()
    return made.reply


async def of_hold(hold: AsyncHold, name: str, given: dict[str, Any]) -> Any:
    if name == "leave":
        return await hold.__aexit__(None, None, None)
    if name == "lost":
        return hold.lost.is_set()
    return await (hold.settle(**given) if name == "hold_settle" else hold.refund())


async def all_of(wanted: list[dict[str, Any]]) -> list[Any]:
    return [await answer(call) for call in wanted]


async def answer(call: dict[str, Any]) -> dict[str, Any]:
    said = {"id": call["id"]} if "id" in call else {}
    try:
        return {**said, "result": calls.result(await make(call))}
    except (Exception, asyncio.CancelledError) as error:
        return {**said, "error": calls.error(error)}


async def write_answer(call: dict[str, Any]) -> None:
    try:
        calls.write(await answer(call))
    finally:
        TASKS.pop(call["id"], None)


async def main() -> None:
    calls.write({"driver": "python-asyncio", "can": ["cancel", "new_loop"]})
    lines = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        call = json.loads(line)
        TASKS[call["id"]] = asyncio.create_task(write_answer(call))
    await asyncio.gather(*TASKS.values())


if __name__ == "__main__":
    asyncio.run(main())
