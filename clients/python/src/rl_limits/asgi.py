"""A middleware for Starlette, FastAPI and every other application of ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

from ._commands import Cost, Limit, Rules
from ._replies import Report
from .address import network
from .http import PROBLEM_TYPE, Count, Headers, counts, fields, problem, status
from .limiter import AsyncRateLimiter

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Answer = TypeVar("Answer")
#: What a function returns, or a coroutine of it.
Maybe: TypeAlias = Answer | Awaitable[Answer]


class RateLimitMiddleware:
    """Lets requests pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After.

    `limits` are rules for each key, or a function that says what a request must keep to: several limits are decided at
    once, so that all of them consume, or none; a request without limits passes. Handlers find the report in
    `request.state.rate_limit`. While the server cannot be asked, the limiter's `outage` decides.

    - `key`: the key of rules, by default the client's network; `prefix` is that of an IPv6 network.
    - `cost`: what a request costs.
    - `skip`: which requests pass without a check.
    - `count`: `"failed"` or `"successful"` gives back what other answers than these have consumed.
    - `headers`: which fields clients get.
    - `refusal`: an application of ASGI, such as a Response of Starlette, that refuses a request.
    """

    def __init__(
        self,
        app: App,
        limiter: AsyncRateLimiter,
        limits: Rules | Callable[[Scope], Maybe[Sequence[Limit]]],
        *,
        key: Callable[[Scope], str] | None = None,
        prefix: int = 64,
        cost: Callable[[Scope], Cost] = lambda scope: 1,
        skip: Callable[[Scope], bool] = lambda scope: False,
        count: Count = "all",
        headers: Headers = "draft-11",
        refusal: Callable[[Scope, Report], App] | None = None,
    ) -> None:
        self.app = app
        self.limiter = limiter
        self.limits = limits
        self.key = key or (lambda scope: f"ip:{network(address_of(scope), prefix)}")
        self.cost = cost
        self.skip = skip
        self.count = count
        self.headers = headers
        self.refusal = refusal or (lambda scope, report: _problem(report))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = () if scope["type"] != "http" or self.skip(scope) else await self._limits_of(scope)
        if not wanted:
            return await self.app(scope, receive, send)
        report = await self.limiter.check_all(wanted, cost=self.cost(scope))
        scope.setdefault("state", {})["rate_limit"] = report
        answer = Sender(send, fields(report, self.headers))
        if not report.allowed:
            return await self.refusal(scope, report)(scope, receive, answer)
        if report.wait_ms > 0:  # its turn under a `leaky` rule
            await asyncio.sleep(report.wait_ms / 1000)
        try:
            await self.app(scope, receive, answer)
        finally:
            if not counts(self.count, answer.status):
                await self.limiter.give_back(report)

    async def _limits_of(self, scope: Scope) -> Sequence[Limit]:
        if callable(self.limits):
            found = self.limits(scope)
            return await found if isinstance(found, Awaitable) else found
        return [Limit(self.key(scope), self.limits)] if self.limits else []


def address_of(scope: Scope) -> str | None:
    """The client's address, which nobody has behind a unix socket."""
    client = scope.get("client")
    return client[0] if client else None


class Sender:
    """Adds fields to an answer, and remembers its status: 500 if the application sends none."""

    def __init__(self, send: Send, told: dict[str, str]) -> None:
        self.status = 500
        self._send = send
        self._told = [(name.lower().encode(), value.encode()) for name, value in told.items()]

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._told]
        await self._send(message)


def _problem(report: Report) -> App:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        body = json.dumps(problem(report)).encode()
        headers = [(b"content-type", PROBLEM_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status(report), "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return refuse
