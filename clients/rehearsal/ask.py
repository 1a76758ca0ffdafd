"""Sends 50 checks a second through the Python client: `ask.py URL OUTAGE SECONDS`; see rehearse.py."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from rl_limits import AsyncRateLimiter

INTERVAL_S = 0.02


async def main(url: str, outage: Any, seconds: str) -> None:
    limiter = AsyncRateLimiter.from_url(url, outage=outage)
    await limiter.check("rehearsal", "window:1000000/h")
    print("ready", flush=True)
    began = time.monotonic()

    async def ask(at_s: float) -> None:
        try:
            what: str = (await limiter.check("rehearsal", "window:1000000/h")).source
        except Exception as error:
            what = f"error {type(error).__name__}"
        print(json.dumps({"at_s": at_s, "took_s": time.monotonic() - began - at_s, "what": what}))

    asking = []
    for n in range(round(float(seconds) / INTERVAL_S)):
        await asyncio.sleep(began + n * INTERVAL_S - time.monotonic())
        asking.append(asyncio.create_task(ask(n * INTERVAL_S)))
    await asyncio.gather(*asking)


asyncio.run(main(*sys.argv[1:]))
