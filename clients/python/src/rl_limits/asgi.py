"""A middleware for Starlette, FastAPI and every other application of ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

from redis import RedisError

from ._commands import Cost, Limit
from ._replies import Report
from .http import PROBLEM_TYPE, fields, problem, status
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

    `limits` says what a request must keep to: several limits are decided at once, so that all of them consume, or none;
    a request without limits passes. Handlers find the report in `request.state.rate_limit`. Without `on_error` a
    request fails while the server cannot be asked; with it a request passes unless `on_error` raises.
    """

    def __init__(
        self,
        app: App,
        limiter: AsyncRateLimiter,
        limits: Callable[[Scope], Maybe[Sequence[Limit]]],
        *,
        cost: Callable[[Scope], Cost] = lambda scope: 1,
        on_error: Callable[[RedisError, Scope], Maybe[None]] | None = None,
    ) -> None:
        self.app = app
        self.limiter = limiter
        self.limits = limits
        self.cost = cost
        self.on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = await _settled(self.limits(scope)) if scope["type"] == "http" else ()
        if not wanted:
            return await self.app(scope, receive, send)
        try:
            report = await self.limiter.check_all(wanted, cost=self.cost(scope))
        except RedisError as error:
            if self.on_error is None:
                raise
            await _settled(self.on_error(error, scope))
            return await self.app(scope, receive, send)
        scope.setdefault("state", {})["rate_limit"] = report
        send = _with_fields(report, send)
        if not report.allowed:
            return await _refuse(report, send)
        if report.wait_ms > 0:  # its turn under a `leaky` rule
            await asyncio.sleep(report.wait_ms / 1000)
        await self.app(scope, receive, send)


async def _settled(answer: Maybe[Answer]) -> Answer:
    return await answer if isinstance(answer, Awaitable) else answer


def _with_fields(report: Report, send: Send) -> Send:
    told = [(name.lower().encode(), value.encode()) for name, value in fields(report).items()]

    async def send_with_fields(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *told]
        await send(message)

    return send_with_fields


async def _refuse(report: Report, send: Send) -> None:
    body = json.dumps(problem(report)).encode()
    headers = [(b"content-type", PROBLEM_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status(report), "headers": headers})
    await send({"type": "http.response.body", "body": body})
