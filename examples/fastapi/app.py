#!/usr/bin/env python3
"""A web application with limits by address and by user, and a page that shows its client what is left of them.

    make run           # in one terminal: a server with the module
    make fastapi       # in another: this application, on http://127.0.0.1:8000 (PORT=8000 REDIS_URL=redis://localhost)
"""

import asyncio
import os
import socket
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from rl_limits import AsyncRateLimiter, Limit, network
from rl_limits.asgi import RateLimitMiddleware, address_of

WEB = Path(__file__).parents[1] / "web"

# In place of a real application's sessions: the user of each token.
USERS = {"token-of-ann": "ann", "token-of-bob": "bob"}

# These limits are for fairness: without the server, this process keeps to them by itself. In a cluster, the keys of the
# address and of the user may be on different nodes, so the limiter checks each separately.
limiter = AsyncRateLimiter.from_url(
    os.environ.get("REDIS_URL", "redis://localhost"), outage="local", separately=True, on_outage=print
)


def limits_of(request):
    """Counts every client by address, and users by name as well, from any address."""
    limits = [Limit(f"web:ip:{network(address_of(request.scope))}", "20/m,name=address")]
    user = USERS.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    if user:
        limits.append(Limit(f"web:user:{user}", "5/m,name=user"))
    return limits


def limits_of_scope(scope):
    """The page and the quota cost nothing, so a client without quota can see when its quota comes back."""
    return limits_of(Request(scope)) if scope["path"] == "/ask" else []


app = FastAPI()
app.mount("/web", StaticFiles(directory=WEB))
app.add_middleware(RateLimitMiddleware, limiter=limiter, limits=limits_of_scope)


@app.get("/")
def page():
    return FileResponse(WEB / "quota.html")


@app.get("/quota")
async def quota(request: Request):
    reports = await asyncio.gather(*(limiter.peek_all(key, rules) for key, rules in limits_of(request)))
    rules = [rule for report in reports for rule in report.rules]
    return [{"name": rule.name, "remaining": rule.remaining, "limit": rule.limit} for rule in rules]


@app.post("/ask")
def ask():
    return PlainTextResponse("42")


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "8000"))))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    # Only a proxy on this machine may set the client's address.
    config = uvicorn.Config(app, proxy_headers=True, forwarded_allow_ips="127.0.0.1", log_level="warning")
    uvicorn.Server(config).run([listener])
