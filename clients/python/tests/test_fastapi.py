"""A limit for one route of FastAPI, as a dependency."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.testclient import TestClient
from servers import Server
from starlette.websockets import WebSocketDisconnect

from rl_limits import AsyncRateLimiter, Limit
from rl_limits.asgi import RateLimitMiddleware
from rl_limits.fastapi import RateLimit


@pytest.fixture
def limiter(newest: Server) -> AsyncRateLimiter:
    return AsyncRateLimiter.from_url(newest.url, timeout=5)


def asking(*limits: RateLimit) -> Iterator[TestClient]:
    app = FastAPI()
    for n, limit in enumerate(limits):

        @app.get(f"/{n}/{{item}}", dependencies=[Depends(limit)])
        def hello(item: str, request: Request) -> Any:
            return request.state.rate_limit.verdict

        @app.websocket(f"/{n}")
        async def socket(websocket: WebSocket, _: None = Depends(limit)) -> None:
            await websocket.accept()
            await websocket.close()

    @app.get("/free")
    def free() -> str:
        return "free"

    with TestClient(app) as client:
        yield client


def test_one_route_is_limited(limiter: AsyncRateLimiter) -> None:
    for client in asking(RateLimit(limiter, "2/m,name=few"), RateLimit(limiter, "1/m", headers="legacy")):
        answers = [client.get(path) for path in ("/0/a", "/0/b", "/0/c", "/1/a", "/1/a", "/free")]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 200, 429, 200]
        assert answers[0].json() == "allowed"
        assert answers[0].headers["RateLimit"] == '"few";r=1;t=60'
        assert 0 < int(answers[2].headers["Retry-After"]) <= 60
        assert answers[2].json() == {"detail": "Too many requests"}
        assert answers[3].headers["X-RateLimit-Remaining"] == "0"
        assert "RateLimit" not in answers[5].headers


def test_a_socket_is_refused_before_it_opens(limiter: AsyncRateLimiter) -> None:
    for client in asking(RateLimit(limiter, "1/m")):
        with client.websocket_connect("/0"):
            pass
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/0"):
            pass


def test_a_function_knows_the_limits_and_the_cost(limiter: AsyncRateLimiter) -> None:
    async def limits(scope: Any) -> list[Limit]:
        return [Limit("user:42", "5/m")] if scope["query_string"] else []

    for client in asking(RateLimit(limiter, limits, cost=lambda scope: 3)):
        assert [client.get("/0/a?x").status_code for _ in range(2)] == [200, 429]
        with pytest.raises(AttributeError, match="rate_limit"):
            client.get("/0/a")


def test_without_a_decision_it_is_no_fault_of_the_client(stopped: Server) -> None:
    for client in asking(RateLimit(AsyncRateLimiter.from_url(stopped.url), "5/m")):
        answer = client.get("/0/a")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize("wrong", ["5/x", 7])
def test_wrong_limits_log_one_line(limiter: AsyncRateLimiter, caplog: pytest.LogCaptureFixture, wrong: Any) -> None:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limiter=limiter, limits=lambda scope: [Limit("k", wrong)])
    dependency = RateLimit(limiter, lambda scope: [Limit("k", wrong)])
    for client in [*asking(dependency), TestClient(app)]:
        with client, caplog.at_level(logging.WARNING, "rl_limits"):
            assert {client.get("/0/a").status_code for _ in range(5)} == {500}
    [line] = [record for record in caplog.records if record.name == "rl_limits"]
    assert str(wrong) in line.getMessage() and "\n" not in line.getMessage()


def test_wrong_options_are_refused(limiter: AsyncRateLimiter) -> None:
    for options in (
        {"limits": "slots:2"},
        {"limits": []},
        {"limits": "5/m", "key": "ip"},
        {"limits": "5/m", "prefix": 129},
    ):
        with pytest.raises((TypeError, ValueError)):
            RateLimit(limiter, **options)  # type: ignore[arg-type]
