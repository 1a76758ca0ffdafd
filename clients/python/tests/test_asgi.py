"""The middleware under Starlette, with real requests."""

import time
from collections.abc import AsyncIterator

import pytest
from httpx import ASGITransport, AsyncClient
from redis import RedisError
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Scope

from rl_limits import AsyncRateLimiter, Limit
from rl_limits.asgi import RateLimitMiddleware
from servers import Server


def limits_of(scope: Scope) -> list[Limit]:
    if scope["path"] == "/health":
        return []
    user = dict(scope["headers"]).get(b"x-user", b"nobody").decode()
    return [Limit("web:ip", ["10/s,name=burst", "1000/d,shadow"]), Limit(f"web:{user}", "2/m,name=user")]


async def hello(request: Request) -> JSONResponse:
    report = getattr(request.state, "rate_limit", None)
    return JSONResponse(report and report.verdict, headers={"RateLimit": '"own";r=1;t=1'})


async def asked(server: Server, **options: object) -> AsyncIterator[AsyncClient]:
    options = {"limits": limits_of, **options}
    async with Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as redis:
        app = Starlette(routes=[Route("/", hello), Route("/health", hello)])
        app.add_middleware(RateLimitMiddleware, limiter=AsyncRateLimiter(redis), **options)
        transport = ASGITransport(app, raise_app_exceptions=False)
        async with AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


async def test_requests_pass_until_a_rule_denies(server: Server) -> None:
    async for client in asked(server):
        first = await client.get("/")
        assert (first.status_code, first.json()) == (200, "allowed")
        assert first.headers["ratelimit-policy"] == '"burst";q=10;w=1, "user";q=2;w=60'
        assert first.headers.get_list("ratelimit") == ['"own";r=1;t=1', '"burst";r=9;t=1, "user";r=1;t=60']
        assert "retry-after" not in first.headers
        await client.get("/")
        denied = await client.get("/")
        assert (denied.status_code, denied.headers["content-type"]) == (429, "application/problem+json")
        assert denied.json()["violated-policies"] == ["user"]
        assert denied.headers["ratelimit"].startswith('"burst";r=8;t=1, "user";r=0;t='), "the denial took nothing"
        assert 0 < int(denied.headers["retry-after"]) <= 60
        assert (await client.get("/", headers={"x-user": "ann"})).status_code == 200
        assert (await client.get("/health")).json() is None


async def test_blocked_clients_are_forbidden(newest: Server) -> None:
    with newest.client() as redis:
        redis.execute_command("RL.BLOCK", "web:nobody")
    async for client in asked(newest):
        answer = await client.get("/")
        assert (answer.status_code, answer.json()) == (403, {"title": "Forbidden", "status": 403})
        assert "retry-after" not in answer.headers


async def test_a_cost_and_coroutines(newest: Server) -> None:
    async def limits(scope: Scope) -> list[Limit]:
        return limits_of(scope)

    async for client in asked(newest, limits=limits, cost=lambda scope: 2):
        assert (await client.get("/")).headers.get_list("ratelimit")[1] == '"burst";r=8;t=1, "user";r=0;t=60'


async def test_no_time_is_told_for_what_can_never_pass(newest: Server) -> None:
    async for client in asked(newest, limits=lambda scope: [Limit("nobody", "0/m,name=closed")]):
        denied = await client.get("/")
        assert denied.headers["ratelimit"] == '"closed";r=0'
        assert "retry-after" not in denied.headers


async def test_a_turn_is_waited_for(newest: Server) -> None:
    async for client in asked(newest, limits=lambda scope: [Limit("queue", "leaky:10/s")]):
        began = time.monotonic()
        for _ in range(3):
            assert (await client.get("/")).status_code == 200
        assert 0.19 < time.monotonic() - began < 2


@pytest.mark.parametrize("aio", [False, True])
async def test_without_the_server_requests_fail_or_pass_as_chosen(stopped: Server, aio: bool) -> None:
    seen = []

    async def later(error: RedisError, scope: Scope) -> None:
        seen.append(error)

    async for client in asked(stopped):
        assert (await client.get("/")).status_code == 500
    async for client in asked(stopped, on_error=later if aio else lambda error, scope: seen.append(error)):
        assert (await client.get("/")).json() is None
    assert len(seen) == 1
