"""A middleware for Starlette, FastAPI and every other application of ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

from . import _given as given
from . import http
from ._commands import Cost, Limit, Rules
from ._replies import Report
from .address import Networks
from .http import Count, Headers
from .limiter import AsyncRateLimiter

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Returned = TypeVar("Returned")
#: What a function returns, directly or as an awaitable.
Maybe: TypeAlias = Returned | Awaitable[Returned]


class RateLimitMiddleware:
    """Lets requests and WebSockets pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After.

    `limits` are rules for each key, or a function that returns the limits of a request. Several limits are decided at
    once, so that all of them consume, or none; a request without limits passes. Handlers find the report in
    `request.state.rate_limit`. While the server cannot be asked, the limiter's `outage` decides. Of a WebSocket only
    the handshake is limited; servers without the extension `websocket.http.response` refuse it with a bare 403.

    - `key`: the key for rules that are given without one, by default the client's network.
    - `prefix`: the length of an IPv6 network's prefix.
    - `cost`: what a request costs.
    - `skip`: which requests pass without a check.
    - `count`: `"failed"` or `"successful"` gives back the units of all other requests. A handshake that the
      application refuses has failed.
    - `headers`: which fields clients get.
    - `refuse`: which application of ASGI, such as a Response of Starlette, answers a refused request.
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
        refuse: Callable[[Scope, Report], App] | None = None,
    ) -> None:
        for name, function in (("key", key), ("cost", cost), ("skip", skip), ("refuse", refuse)):
            given.function(name, function)
        http.check_options(count, headers)
        if not callable(limits):
            http.check_rules("limits", limits, count)
        http.check_engine(limiter.core, count, limits)
        networks = Networks(prefix)
        self.app = app
        self.limiter = limiter
        self.limits = limits
        self.key = key or (lambda scope: f"ip:{networks(address_of(scope))}")
        self.cost = cost
        self.skip = skip
        self.count = count
        self.headers = headers
        self.refuse = refuse or (lambda scope, report: _problem(report, http.status(report)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limited = scope["type"] in ("http", "websocket") and not self.skip(scope)
        wanted = await limits_of(self.limits, self.key, scope) if limited else ()
        if not wanted:
            return await self.app(scope, receive, send)
        core, held = self.limiter.core, http.held_by(self.count)
        keys = [limit.key for limit in wanted]
        asking = core.check_held(wanted, self.cost(scope), held)
        try:
            report = await (self.limiter.take(asking, keys, held.id) if held else self.limiter.ask_all(asking))
        except Exception as error:
            failed = http.status_of(core, error)
            told = http.fields(http.UNDECIDED) if failed == 503 else {}
            return await _problem(http.UNDECIDED, failed)(scope, receive, Answer(scope, send, told))
        scope.setdefault("state", {})["rate_limit"] = report
        told = http.fields(report, self.headers)
        if not report.allowed:
            return await self.refuse(scope, report)(scope, receive, Answer(scope, send, told))

        settling: list[asyncio.Task[None]] = []

        def settle(status: int) -> None:
            if held:
                ended = core.end_all(keys, held, refund=not http.counts(self.count, status))
                settling.append(self.limiter.begin(self.limiter.run(ended)))

        answer = Answer(scope, send, told, settle)
        try:
            if report.wait_ms > 0:  # the request's turn under a `leaky` rule
                await asyncio.sleep(report.wait_ms / 1000)
            await self.app(scope, receive, answer)
        finally:
            answer.end()
            for task in settling:
                await asyncio.shield(task)


async def limits_of(
    limits: Rules | Callable[[Scope], Maybe[Sequence[Limit]]], key: Callable[[Scope], str], scope: Scope
) -> Sequence[Limit]:
    """The limits of a request, which a function may know."""
    if callable(limits):
        found = limits(scope)
        return await found if isinstance(found, Awaitable) else found
    return [Limit(key(scope), limits)]


def address_of(scope: Scope) -> str | None:
    """The client's address, or None behind a unix socket."""
    client = scope.get("client")
    return client[0] if client else None


class Answer:
    """Adds fields to an answer, and reports its status as soon as it is known: 500 if the application sends none, 101
    for a WebSocket that it accepts, 403 for one that it closes before accepting."""

    def __init__(
        self,
        scope: Scope,
        send: Send,
        told: dict[str, str],
        settle: Callable[[int], object] | None = None,
    ) -> None:
        self._send = send
        self._settle = settle
        self._told = [(name.lower().encode(), value.encode()) for name, value in told.items()]
        self._websocket = scope["type"] == "websocket"
        self._bare = self._websocket and "websocket.http.response" not in (scope.get("extensions") or {})

    async def __call__(self, message: Message) -> None:
        kind = message["type"].removeprefix("websocket.")
        if kind in ("http.response.start", "accept"):
            message["headers"] = [*message.get("headers", ()), *self._told]
        if self._websocket and kind.startswith("http.response."):
            message["type"] = f"websocket.{kind}"
            if self._bare:
                if kind == "http.response.start":
                    await self._send({"type": "websocket.close", "code": 1008})
                    self._known(message["status"])
                return
        await self._send(message)
        if kind == "http.response.start":
            self._known(message["status"])
        elif self._websocket and kind in ("accept", "close"):
            self._known(101 if kind == "accept" else 403)

    def end(self) -> None:
        self._known(500)

    def _known(self, status: int) -> None:
        settle, self._settle = self._settle, None
        if settle:
            settle(status)


def _problem(report: Report, status: int) -> App:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        body = json.dumps(http.problem(report, status)).encode()
        headers = [(b"content-type", http.PROBLEM_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return refuse
