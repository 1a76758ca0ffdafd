"""The middleware under Starlette, with real requests."""

import time
from collections.abc import AsyncIterator

import pytest
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import Scope

from rl_limits import Limit, Report
from rl_limits.asgi import RateLimitMiddleware
from servers import Server


def limits_of(scope: Scope) -> list[Limit]:
    if scope["path"] == "/health":
        return []
    user = dict(scope["headers"]).get(b"x-user", b"nobody").decode()
    return [Limit("web:ip", ["10/s,name=burst", "1000/d,shadow"]), Limit(f"web:{user}", "2/m,name=user")]


async def hello(request: Request) -> JSONResponse:
    report = getattr(request.state, "rate_limit", None)
    status = int(request.query_params.get("status", 200))
    return JSONResponse(report and report.verdict, status, headers={"RateLimit": '"own";r=1;t=1'})


async def asked(
    server: Server, outage: str = "raise", address: str | None = "203.0.113.9", **options: object
) -> AsyncIterator[AsyncClient]:
    options = {"limits": limits_of, **options}
    async with server.async_limiter(outage=outage) as limiter:
        app = Starlette(routes=[Route("/", hello), Route("/health", hello)])
        app.add_middleware(RateLimitMiddleware, limiter=limiter, **options)
        transport = ASGITransport(app, raise_app_exceptions=False, client=address and (address, 123))
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


async def test_without_the_server_the_limiter_answers_as_chosen(stopped: Server) -> None:
    async for client in asked(stopped):
        assert (await client.get("/")).status_code == 500
    async for client in asked(stopped, "allow"):
        assert [(await client.get("/")).status_code for _ in range(5)] == [200] * 5
    async for client in asked(stopped, "local"):
        answers = [await client.get("/") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["violated-policies"] == ["user"]
    async for client in asked(stopped, "deny"):
        refused = await client.get("/")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1"), "it is our fault"
        assert refused.json() == {"title": "Service Unavailable", "status": 503}


@pytest.mark.parametrize(
    "address, prefix, key",
    [
        ("203.0.113.9", 64, "ip:203.0.113.9"),
        ("2001:db8:1:2::3", 64, "ip:2001:db8:1:2::/64"),
        ("2001:db8:1:2::3", 48, "ip:2001:db8:1::/48"),
        (None, 64, "ip:unknown"),
    ],
)
async def test_rules_alone_limit_each_network(newest: Server, address: str | None, prefix: int, key: str) -> None:
    async for client in asked(newest, address=address, limits="1/m", prefix=prefix):
        assert [(await client.get("/")).status_code for _ in range(2)] == [200, 429]
    with newest.client() as redis:
        assert redis.keys() == [key]


async def test_a_key_a_skip_and_no_rules(newest: Server) -> None:
    def of_user(scope: Scope) -> str:
        return "user:42"

    async for client in asked(
        newest, limits=["1/m", "9/d"], key=of_user, skip=lambda scope: scope["path"] == "/health"
    ):
        assert [(await client.get("/health")).status_code for _ in range(2)] == [200, 200]
        assert [(await client.get("/")).status_code for _ in range(2)] == [200, 429]
    for limits in ([], lambda scope: [], ""):
        async for client in asked(newest, limits=limits):
            assert (await client.get("/")).json() is None
    with newest.client() as redis:
        assert redis.keys() == ["user:42"]


@pytest.mark.parametrize("count, left", [("all", 6), ("failed", 8), ("successful", 8)])
async def test_requests_count_by_their_answers(newest: Server, count: str, left: int) -> None:
    async for client in asked(newest, limits=["10/m,name=burst", "bucket:100/d,cost=5"], count=count):
        for status in (200, 302, 404, 500):
            await client.get("/", params={"status": status})
    with newest.client() as redis:
        assert redis.execute_command("RL.PEEK", "ip:203.0.113.9", "10/m,name=burst")[2] == left


async def test_legacy_fields_none_and_a_refusal(newest: Server) -> None:
    async for client in asked(newest, limits="2/m", headers="legacy"):
        first = await client.get("/")
        assert {name: first.headers[f"x-ratelimit-{name}"] for name in ("limit", "remaining", "reset")} == {
            "limit": "2",
            "remaining": "1",
            "reset": "60",
        }

    def refuse(scope: Scope, report: Report) -> PlainTextResponse:
        return PlainTextResponse(f"wait {report.wait_ms // 60_000} min", 420)

    async for client in asked(newest, limits="1/h", headers="none", refusal=refuse):
        assert "ratelimit-policy" not in (await client.get("/")).headers
        refused = await client.get("/")
        assert (refused.status_code, refused.text) == (420, "wait 59 min")
        assert "retry-after" in refused.headers
