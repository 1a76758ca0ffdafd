"""The middleware under Starlette, with real requests."""

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import Any

import pytest
import servers
from httpx import ASGITransport, AsyncClient
from servers import Server, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import limiters
from rl_limits import Limit, Report
from rl_limits._commands import Held
from rl_limits.asgi import RateLimitMiddleware
from test_holds import holds, left, settled


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
    server: Server,
    outage: str = "raise",
    address: str | None = "203.0.113.9",
    endpoint: Any = hello,
    of_limiter: dict[str, Any] = MappingProxyType({}),
    **options: object,
) -> AsyncIterator[AsyncClient]:
    options = {"limits": limits_of, **options}
    async with limiters.async_of(server, outage=outage, **of_limiter) as limiter:
        app = Starlette(routes=[Route("/", endpoint), Route("/health", hello)])
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


async def test_limits_may_be_a_coroutine_and_the_cost_a_function(newest: Server) -> None:
    async def limits(scope: Scope) -> list[Limit]:
        return limits_of(scope)

    async for client in asked(newest, limits=limits, cost=lambda scope: 2):
        assert (await client.get("/")).headers.get_list("ratelimit")[1] == '"burst";r=8;t=1, "user";r=0;t=60'


async def test_a_request_that_can_never_pass_gets_no_time(newest: Server) -> None:
    async for client in asked(newest, limits=lambda scope: [Limit("nobody", "0/m,name=closed")]):
        denied = await client.get("/")
        assert denied.headers["ratelimit"] == '"closed";r=0'
        assert "retry-after" not in denied.headers


async def test_a_request_waits_for_its_turn(newest: Server) -> None:
    async for client in asked(newest, limits=lambda scope: [Limit("queue", "leaky:10/s")]):
        began = time.monotonic()
        for _ in range(3):
            assert (await client.get("/")).status_code == 200
        assert 0.19 < time.monotonic() - began < 2


async def test_without_the_server_the_limiter_answers_as_chosen(stopped: Server) -> None:
    async for client in asked(stopped, "allow"):
        assert [(await client.get("/")).status_code for _ in range(5)] == [200] * 5
    async for client in asked(stopped, "local"):
        answers = [await client.get("/") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["violated-policies"] == ["user"]
    for outage in ("deny", "raise"):
        async for client in asked(stopped, outage):
            refused = await client.get("/")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1"), "not the client's fault"
            assert refused.json() == {"title": "Service Unavailable", "status": 503}


@pytest.mark.parametrize("separately", [False, True])
async def test_a_policy_with_slots_is_an_error_and_takes_no_slot(newest: Server, separately: bool) -> None:
    with newest.client() as client:
        client.execute_command("RL.POLICY", "SET", "shared", "9/m", "slots:2")
    limits = [Limit("{k}1", "9/h"), Limit("{k}2", "@shared")]
    async with limiters.async_of(newest, separately=separately) as limiter:
        held = Held.new(60_000)
        with pytest.raises(ValueError, match="the rules have 'slots:2', expected other rules: slots are held"):
            await limiter.run(limiter.core.check_held(limits, 1, held))
        assert [(await limiter.peek(*limit)).remaining for limit in (limits[0], Limit("{k}2", "slots:2"))] == [9, 2]
    with newest.client() as client:
        client.execute_command("RL.POLICY", "DEL", "shared", "FORCE")
    async for client in asked(newest, count="failed", limits=lambda scope: [Limit("k", "slots:2")]):
        assert (await client.get("/")).status_code == 500


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


async def test_the_options_key_and_skip_and_requests_without_rules(newest: Server) -> None:
    def of_user(scope: Scope) -> str:
        return "user:42"

    async for client in asked(
        newest, limits=["1/m", "9/d"], key=of_user, skip=lambda scope: scope["path"] == "/health"
    ):
        assert [(await client.get("/health")).status_code for _ in range(2)] == [200, 200]
        assert [(await client.get("/")).status_code for _ in range(2)] == [200, 429]
    async for client in asked(newest, limits=lambda scope: []):
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


async def test_options_choose_the_fields_and_the_refusal(newest: Server) -> None:
    async for client in asked(newest, limits="2/m", headers="legacy"):
        first = await client.get("/")
        assert {name: first.headers[f"x-ratelimit-{name}"] for name in ("limit", "remaining", "reset")} == {
            "limit": "2",
            "remaining": "1",
            "reset": "60",
        }

    def refuse(scope: Scope, report: Report) -> PlainTextResponse:
        return PlainTextResponse(f"wait {-(-report.wait_ms // 60_000)} min", 420)

    async for client in asked(newest, limits="1/h", headers="none", refuse=refuse):
        assert "ratelimit-policy" not in (await client.get("/")).headers
        refused = await client.get("/")
        assert (refused.status_code, refused.text) == (420, "wait 1 min")
        assert "retry-after" in refused.headers


@pytest.mark.parametrize("count", ["failed", "successful"])
async def test_slow_answers_across_a_boundary_allow_no_extra_tries(newest: Server, count: str) -> None:
    """A request gets its own units back, not the newest units of the next window."""
    rules = ["5/4s", "window:5/4s", "fixed:5/4s", "fixed:5/4s,align=first", "bucket:5/h"]
    failed, fine = PlainTextResponse("failed", 401), PlainTextResponse("fine")
    counted, uncounted = (failed, fine) if count == "failed" else (fine, failed)

    async def try_with(rule: str) -> None:
        slow, began = asyncio.Event(), asyncio.Semaphore(0)

        async def answer(request: Request) -> PlainTextResponse:
            if "slow" not in request.query_params:
                return counted
            began.release()
            await slow.wait()
            return uncounted

        async for client in asked(newest, limits=rule, count=count, endpoint=answer, key=lambda scope: rule):
            held = [asyncio.create_task(client.get("/?slow=1")) for _ in range(4)]
            for _ in held:
                await began.acquire()
            while rule.endswith("s") and left(newest, rule, rule) < 5:
                await asyncio.sleep(0.02)  # until the charges of the slow requests no longer count
            seen = [(await client.get("/")).status_code for _ in range(5)]
            slow.set()
            assert {answer.status_code for answer in await asyncio.gather(*held)} == {uncounted.status_code}
            seen += [(await client.get("/")).status_code for _ in range(4)]
            assert seen.count(counted.status_code) == 5, rule

    await asyncio.gather(*map(try_with, rules))


async def test_a_streamed_answer_is_counted_when_it_begins(newest: Server) -> None:
    async def stream(request: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[str]:
            yield "part"
            await asyncio.to_thread(until, lambda: left(newest, "ip:203.0.113.9", "5/m") == 5)

        return StreamingResponse(parts())

    async for client in asked(newest, limits="5/m", count="failed", endpoint=stream):
        assert (await client.get("/")).text == "part"


async def test_an_answer_does_not_wait_until_it_is_counted(newest: Server) -> None:
    answered = asyncio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        newest.process.send_signal(signal.SIGSTOP)
        await PlainTextResponse("fine")(scope, receive, send)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            answered.set()

    async def receive() -> Message:
        return {"type": "http.request"}

    scope: Scope = {"type": "http", "path": "/", "headers": [], "client": ("203.0.113.9", 1)}
    async with limiters.async_of(newest) as limiter:
        app = RateLimitMiddleware(answer, limiter, "5/m", count="failed")
        request = asyncio.create_task(app(scope, receive, send))
        try:
            await asyncio.wait_for(answered.wait(), 3)
            assert not request.done()
        finally:
            newest.process.send_signal(signal.SIGCONT)
        await request
        assert left(newest, "ip:203.0.113.9", "5/m") == 5, "it is counted before the request ends"


async def test_a_key_without_room_for_holds_counts_every_request(
    newest: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with newest.client() as redis:
        redis.config_set("ratelimit.max-holds", 1)
        try:
            redis.execute_command("RL.CHECK", "ip:203.0.113.9", "HOLD", "other", "EX", 600, "9/m")
            async for client in asked(newest, limits="5/m", count="failed"):
                assert [(await client.get("/")).status_code for _ in range(6)] == [200] * 4 + [429] * 2
        finally:
            redis.config_set("ratelimit.max-holds", 10_000)
    assert caplog.text.count("max-holds") == 1


async def test_a_cancelled_request_settles(newest: Server) -> None:
    reached = asyncio.Event()

    async def slow(request: Request) -> PlainTextResponse:
        reached.set()
        await asyncio.sleep(60)
        return PlainTextResponse("late")

    async for client in asked(newest, limits="5/m", count="successful", endpoint=slow):
        task = asyncio.create_task(client.get("/"))
        await reached.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(until, lambda: left(newest, "ip:203.0.113.9", "5/m") == 5)


async def test_a_request_that_is_cancelled_amid_its_check_holds_nothing(newest: Server) -> None:
    async for client in asked(newest, limits="1000/d", count="failed"):
        for _ in range(10):
            tasks = [asyncio.create_task(client.get("/")) for _ in range(20)]
            await asyncio.sleep(random.uniform(0, 0.01))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(until, lambda: holds(newest, "ip:203.0.113.9") == 0)


async def test_without_a_place_a_request_gets_503_and_nothing_more(newest: Server) -> None:
    async for client in asked(newest, "allow", limits="5/m", of_limiter={"concurrency": 1, "queue_timeout": 0.05}):
        assert (await client.get("/")).status_code == 200
        with newest.paused():
            first = asyncio.create_task(client.get("/"))
            await asyncio.sleep(0.1)
            refused = await client.get("/")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json() == {"title": "Service Unavailable", "status": 503}
        assert "ratelimit" not in refused.headers
        assert (await first).status_code == 200


@pytest.mark.parametrize("wrong", ["a rule", "a type", "a module"])
async def test_no_client_sees_a_key_a_rule_or_the_servers_text(newest: Server, stopped: Server, wrong: str) -> None:
    with newest.client() as redis:
        redis.set("secret:key", "of somebody else")
    with servers.start(module=False) as bare:
        server = bare if wrong == "a module" else newest
        rule = "5/x" if wrong == "a rule" else "5/m"
        async for client in asked(server, limits=lambda scope: [Limit("secret:key", rule)]):
            failed = await client.get("/")
            expected = (503, "Service Unavailable") if wrong == "a module" else (500, "Internal Server Error")
            assert (failed.status_code, failed.json()["title"]) == expected
            assert len(failed.json()) == 2


class Peer:
    """A WebSocket of a client, as a server of ASGI sees it."""

    def __init__(self, app: ASGIApp, *extensions: str) -> None:
        self.app = app
        self.sent: list[Message] = []
        self.scope: Scope = {"type": "websocket", "path": "/", "headers": [], "client": ("203.0.113.9", 1)}
        self.scope["extensions"] = {name: {} for name in extensions}

    async def connect(self) -> list[Message]:
        received = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}])

        async def receive() -> Message:
            return next(received)

        async def send(message: Message) -> None:
            self.sent.append(message)

        await self.app(self.scope, receive, send)
        return self.sent


async def accepts(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await receive()


async def closes(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1008})


async def responds(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("no", 401)(scope, receive, send)


RESPONSE = "websocket.http.response"


async def test_handshakes_of_websockets_are_limited(newest: Server) -> None:
    async with limiters.async_of(newest) as limiter:
        app = RateLimitMiddleware(accepts, limiter, "3/m")
        for _ in range(3):
            [accepted] = await Peer(app).connect()
            assert accepted["type"] == "websocket.accept" and b"ratelimit" in dict(accepted["headers"])
        [closed] = await Peer(app).connect()
        assert closed == {"type": "websocket.close", "code": 1008}, "before it is accepted: 403"
        start, body = await Peer(app, RESPONSE).connect()
        assert (start["type"], start["status"]) == (f"{RESPONSE}.start", 429)
        assert b"retry-after" in dict(start["headers"]) and body["type"] == f"{RESPONSE}.body"

        def refuse(scope: Scope, report: Report) -> PlainTextResponse:
            return PlainTextResponse("later", 420)

        app = RateLimitMiddleware(accepts, limiter, "3/m", refuse=refuse)
        start, body = await Peer(app, RESPONSE).connect()
        assert (start["type"], start["status"], body["body"]) == (f"{RESPONSE}.start", 420, b"later")


@pytest.mark.parametrize("app, status", [(accepts, 101), (closes, 403), (responds, 401)])
@pytest.mark.parametrize("count", ["failed", "successful"])
async def test_handshakes_count_by_their_answers(newest: Server, app: ASGIApp, status: int, count: str) -> None:
    counted = (status >= 400) == (count == "failed")
    seen = asyncio.Event()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)
        await asyncio.to_thread(until, lambda: settled(newest) == before + 1)  # while the connection lasts
        assert left(newest, "ip:203.0.113.9", "5/m") == (4 if counted else 5)
        seen.set()

    before = settled(newest)
    async with limiters.async_of(newest) as limiter:
        await Peer(RateLimitMiddleware(watched, limiter, "5/m", count=count), RESPONSE).connect()
    assert seen.is_set()
