"""A limit for one route of FastAPI: `@app.get("/", dependencies=[Depends(RateLimit(limiter, "5/m"))])`."""

import asyncio
from collections.abc import Callable, Sequence

from fastapi import HTTPException, Response
from starlette.requests import HTTPConnection

from . import _given as given
from ._commands import Cost, Limit, Rules
from .address import Networks
from .asgi import Maybe, Scope, address_of, limits_of
from .http import UNDECIDED, Headers, check_engine, check_options, check_rules, fields, problem, status, status_of
from .limiter import AsyncRateLimiter


class RateLimit:
    """Lets a request pass as the rules say, and sets RateLimit, RateLimit-Policy and Retry-After.

    `limits` are rules for each client of the route, or a function that returns the limits of a request's scope. `key`,
    `prefix`, `cost` and `headers` are those of `rl_limits.asgi.RateLimitMiddleware`. By default the key names the
    route, so that each route has its own count. Handlers find the report in `request.state.rate_limit`.
    """

    def __init__(
        self,
        limiter: AsyncRateLimiter,
        limits: Rules | Callable[[Scope], Maybe[Sequence[Limit]]],
        *,
        key: Callable[[Scope], str] | None = None,
        prefix: int = 64,
        cost: Callable[[Scope], Cost] = lambda scope: 1,
        headers: Headers = "draft-11",
    ) -> None:
        given.function("key", key)
        given.function("cost", cost)
        check_options("all", headers)
        if not callable(limits):
            check_rules("limits", limits)
        check_engine(limiter.core, "all", limits)
        networks = Networks(prefix)
        self._limiter, self._limits, self._cost, self._headers = limiter, limits, cost, headers
        self._key = key or (lambda scope: f"{_route(scope)}:ip:{networks(address_of(scope))}")

    async def __call__(self, connection: HTTPConnection, response: Response) -> None:
        scope = connection.scope
        wanted = await limits_of(self._limits, self._key, scope)
        if not wanted:
            return
        core = self._limiter.core
        try:
            report = await self._limiter.ask_all(core.check_all(wanted, cost=self._cost(scope)))
        except Exception as error:
            failed = status_of(core, error)
            told = fields(UNDECIDED) if failed == 503 else {}
            raise HTTPException(failed, problem(UNDECIDED, failed)["title"], told) from None
        connection.state.rate_limit = report
        told = fields(report, self._headers)
        if not report.allowed:
            raise HTTPException(status(report), problem(report, status(report))["title"], told)
        response.headers.update(told)
        if report.wait_ms > 0:  # the request's turn under a `leaky` rule
            await asyncio.sleep(report.wait_ms / 1000)


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", scope["path"]))
