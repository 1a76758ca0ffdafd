"""Servers that answer but do not limit: without the module, the password, or the rights."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import valkey
from redis.backoff import NoBackoff
from redis.retry import Retry

import servers
from rl_limits import AsyncRateLimiter, Denied, MisconfiguredEvent, OutageEvent, RateLimiter, is_outage
from rl_limits._errors import advice as advice_on
from servers import Server

RIGHTS = "give the user the rights +@ratelimit ~keys, see SECURITY.md"
MODULE = "load the module: loadmodule libredis_ratelimit.so, see INSTALL.md; or choose engine='script'"
PASSWORD = "give the client the password"
SHARED = json.loads((servers.ROOT / "clients/cases/errors.json").read_text())["cases"]


@pytest.mark.parametrize("case", SHARED, ids=lambda case: case["reply"])
@pytest.mark.parametrize("parser", [redis.connection.DefaultParser, valkey.connection.DefaultParser])
def test_errors_are_judged_alike_in_all_languages(case: dict[str, str], parser: Any) -> None:
    error = parser.parse_error(case["reply"])
    assert is_outage(error) == (case["is"] != "fault") and advice_on(error) == case.get("advice")


@contextmanager
def without_the_module() -> Iterator[tuple[Server, dict[str, str]]]:
    with servers.start(module=False) as server:
        yield server, {}


def refused(options: dict[str, str]) -> Callable[[], Any]:
    @contextmanager
    def served() -> Iterator[tuple[Server, dict[str, str]]]:
        with servers.start() as server, server.client() as client:
            client.execute_command("ACL", "SETUSER", "nobody", "on", ">secret", "~*", "-@all", "+hello", "+client")
            client.execute_command("ACL", "SETUSER", "elsewhere", "on", ">secret", "~other:*", "+@all")
            client.execute_command("ACL", "SETUSER", "default", "on", ">whole")
            yield server, options

    return served


SCENES = {
    "no module": (without_the_module, MODULE),
    "NOAUTH": (refused({}), PASSWORD),
    "WRONGPASS": (refused({"password": "wrong"}), PASSWORD),
    "WRONGPASS of a user": (refused({"username": "nobody", "password": "wrong"}), PASSWORD),
    "NOPERM for the command": (refused({"username": "nobody", "password": "secret"}), RIGHTS),
    "NOPERM for the key": (refused({"username": "elsewhere", "password": "secret"}), RIGHTS),
}


@pytest.fixture(params=SCENES)
def wrong(request: pytest.FixtureRequest) -> Iterator[tuple[Server, dict[str, str], str]]:
    scene, advice = SCENES[request.param]
    with scene() as (server, options):
        yield server, options, advice


async def test_the_limiter_answers_as_chosen_and_says_what_to_do(wrong: tuple[Server, dict[str, str], str]) -> None:
    server, options, advice = wrong
    told: list[MisconfiguredEvent] = []
    stopped: list[OutageEvent] = []
    listen: Any = {"on_misconfigured": told.append, "on_outage": stopped.append, "outage": "local"}
    limiters = [RateLimiter.from_url(server.url, timeout=5, **options, **listen)]
    once = redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0), **options)
    limiters += [RateLimiter(client, **listen) for client in (once, valkey.Valkey(port=server.port, **options))]
    for limiter in limiters:
        told.clear()
        stopped.clear()
        assert [limiter.check("login:42", "2/m").verdict for _ in range(4)] == [
            "allowed",
            "allowed",
            "limited",
            "limited",
        ]
        [event] = told
        assert event.advice == advice and event.answered == 0 and is_outage(event.error)
        assert [one.away for one in stopped] == [True] and limiter.away, "not every check connects to be refused"
        with pytest.raises(Denied), limiter.hold("login:42", "2/m", ttl=30):
            pass
    async with AsyncRateLimiter.from_url(server.url, timeout=5, **options, **listen) as asynchronous:
        told.clear()
        assert [(await asynchronous.check("login:42", "2/m")).source for _ in range(4)] == ["local"] * 4
        assert len(told) == 1 and told[0].advice == advice
    for outage, allowed in (("allow", True), ("deny", False)):
        listen["outage"] = outage
        limiter = RateLimiter.from_url(server.url, timeout=5, **options, **listen)
        assert [limiter.check("login:42", "2/m").allowed for _ in range(4)] == [allowed] * 4
    for _ in range(4):
        with pytest.raises(Exception) as raised:
            RateLimiter.from_url(server.url, timeout=5, **options).check("login:42", "2/m")
    assert is_outage(raised.value)


async def test_without_a_listener_the_log_has_the_advice_and_no_key_or_rule(
    wrong: tuple[Server, dict[str, str], str], caplog: pytest.LogCaptureFixture
) -> None:
    server, options, advice = wrong
    with caplog.at_level(logging.WARNING, "rl_limits"):
        limiter = RateLimiter.from_url(server.url, timeout=5, outage="allow", **options)
        for _ in range(10):
            limiter.check("login:42", "2/15m,name=secret")
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert advice in caplog.text and "login" not in caplog.text and "15m" not in caplog.text


async def test_a_cluster_without_the_module_is_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    told: list[MisconfiguredEvent] = []
    with servers.start_cluster(module=False) as nodes:
        url = nodes[0].url.replace("redis:", "redis+cluster:")
        limiter = RateLimiter.from_url(url, timeout=5, outage="allow", on_misconfigured=told.append)
        assert [limiter.check("a", "1/m").source for _ in range(4)] == ["outage"] * 4
        async with AsyncRateLimiter.from_url(url, timeout=5, outage="allow", on_misconfigured=told.append) as other:
            assert [(await other.check("a", "1/m")).source for _ in range(4)] == ["outage"] * 4
    assert len(told) == 2 and all(event.advice == MODULE for event in told)


async def test_a_cluster_that_refuses_its_client_is_an_outage(cluster: list[Server]) -> None:
    told: list[MisconfiguredEvent] = []
    for node in cluster:
        with node.client() as client:
            client.execute_command("ACL", "SETUSER", "nobody", "on", ">secret", "~*", "-@all", "+hello", "+client")
    url = cluster[0].url.replace("redis:", "redis+cluster:")
    for password in ("wrong", "secret"):
        options: Any = {"username": "nobody", "password": password, "on_misconfigured": told.append, "timeout": 5}
        limiter = RateLimiter.from_url(url, outage="allow", **options)
        assert [limiter.check("a", "1/m").source for _ in range(4)] == ["outage"] * 4
        async with AsyncRateLimiter.from_url(url, outage="allow", **options) as other:
            assert [(await other.check("a", "1/m")).source for _ in range(4)] == ["outage"] * 4
    assert [event.advice for event in told[:2]] == [PASSWORD] * 2
    assert all(event.advice == RIGHTS for event in told[2:])


def test_the_server_is_asked_again_when_it_is_set_right(newest: Server) -> None:
    told: list[MisconfiguredEvent] = []
    with newest.client() as client:
        client.execute_command("ACL", "SETUSER", "late", "on", ">secret", "~*", "-@all", "+hello", "+client")
        options: Any = {"username": "late", "password": "secret", "on_misconfigured": told.append, "timeout": 5}
        limiter = RateLimiter.from_url(newest.url, outage="local", **options)
        for _ in range(4):
            assert limiter.check("a", "1/m").source == "local"
        client.execute_command("ACL", "SETUSER", "late", "+@ratelimit")
        servers.until(lambda: limiter.check("a", "9/m").source == "server")
        assert not limiter.away
        client.execute_command("ACL", "SETUSER", "late", "-@ratelimit")
        assert limiter.check("a", "1/m").source == "local" and len(told) == 1, "one report a minute"


async def test_a_command_that_the_application_misspells_stops_no_limit(newest: Server) -> None:
    told: list[MisconfiguredEvent] = []
    limiter = newest.limiter(outage="allow", on_misconfigured=told.append)
    async with newest.async_limiter(outage="allow", on_misconfigured=told.append) as asynchronous:
        for _ in range(3):
            with pytest.raises(redis.ResponseError, match="unknown command"):
                limiter.call("RL.CHEKC", "a")
            with pytest.raises(redis.ResponseError, match="unknown command"):
                await asynchronous.call("RL.CHEKC", "a")
        assert [limiter.check("a", "1/h").allowed for _ in range(2)] == [True, False]
        assert not limiter.away and not asynchronous.away and not told


async def test_a_missing_right_to_another_command_stops_no_limit(newest: Server) -> None:
    told: list[MisconfiguredEvent] = []
    with newest.client() as client:
        without = ("-rl.reset", "-rl.refund", "-rl.settle", "-rl.renew", "-rl.pause")
        client.execute_command("ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", *without)
    options: Any = {"username": "weak", "password": "secret", "timeout": 5, "outage": "local"}
    limiter = RateLimiter.from_url(newest.url, on_misconfigured=told.append, **options)
    async with AsyncRateLimiter.from_url(newest.url, on_misconfigured=told.append, **options) as asynchronous:
        for _ in range(3):
            for ask in (
                lambda one: one.reset("a"),
                lambda one: one.refund("a", 1),
                lambda one: one.settle("a", "id"),
                lambda one: one.settle("a", "id", refund=True),
                lambda one: one.renew("a", "id", 1),
                lambda one: one.pause("a", 1),
                lambda one: one.follow("a", 429, {"retry-after": "1"}),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError) as raised:
                    ask(limiter)
                assert not is_outage(raised.value)
                with pytest.raises(redis.exceptions.NoPermissionError):
                    await ask(asynchronous)
        assert limiter.check("b", "9/h").source == (await asynchronous.check("b", "9/h")).source == "server"
        assert not (limiter.away or asynchronous.away or told or limiter.outages)
