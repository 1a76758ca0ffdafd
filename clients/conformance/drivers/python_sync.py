#!/usr/bin/env python3
"""The driver of `rl_limits.RateLimiter` on redis-py. Each call runs in a thread."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from rl_limits import Hold, Lease, RateLimiter

import python_calls as calls

LIMITERS: dict[str, RateLimiter] = {}
HOLDS: dict[str, Hold] = {}
LEASES: dict[str, Lease] = {}


def make(call: dict[str, Any]) -> Any:
    name, given = call["call"], calls.arguments(call)
    if name == "fork":
        return fork(call["calls"])
    if name == "limiter":
        if "url" in call:
            LIMITERS[call["limiter"]] = RateLimiter.from_url(call["url"], **calls.options(call))
        else:
            LIMITERS[call["limiter"]] = RateLimiter.in_process(**calls.arguments(call.get("options", {})))
        return None
    if name in ("leave", "hold_settle", "hold_refund", "lost"):
        return of_hold(HOLDS[call["hold"]], name, given)
    if name == "take":
        return LEASES[call["lease"]].take(**given)
    if name == "give_up":
        return LEASES[call["lease"]].close()
    limiter = LIMITERS[call["limiter"]]
    if name == "lease":
        LEASES[call["lease"]] = Lease(limiter, **given)
        return None
    if name == "state":
        return {"away": limiter.away, "outages": limiter.outages}
    method, first, given = calls.method(name, given)
    made = getattr(limiter, method)(*first, **given)
    if name != "enter":
        return made
    HOLDS[call["hold"]] = made.__enter__()
    return made.reply


def of_hold(hold: Hold, name: str, given: dict[str, Any]) -> Any:
    if name == "leave":
        return hold.__exit__(None, None, None)
    if name == "lost":
        return hold.lost.is_set()
    return hold.settle(**given) if name == "hold_settle" else hold.refund()


def fork(wanted: list[dict[str, Any]]) -> list[Any]:
    reading, writing = os.pipe()
    with calls.OUTPUT:
        child = os.fork()
    if child == 0:
        answers = [answer(call) for call in wanted]
        os.write(writing, json.dumps(answers, default=repr).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return json.loads(text)


def answer(call: dict[str, Any]) -> dict[str, Any]:
    said = {"id": call["id"]} if "id" in call else {}
    try:
        return {**said, "result": calls.result(make(call))}
    except Exception as error:
        return {**said, "error": calls.error(error)}


def write_answer(call: dict[str, Any]) -> None:
    calls.write(answer(call))


def main() -> None:
    calls.write({"driver": "python-redis-py", "can": ["fork"]})
    for line in sys.stdin:
        threading.Thread(target=write_answer, args=(json.loads(line),)).start()


if __name__ == "__main__":
    main()
