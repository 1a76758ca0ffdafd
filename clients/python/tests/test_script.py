"""The engine 'script', on servers without the module."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from django.test import Client
from django.test.utils import override_settings
from fastapi import FastAPI
from fastapi.testclient import TestClient
from redis import Redis, RedisCluster
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from servers import Server

import limiters
from rl_limits import AsyncLease, AsyncRateLimiter, Lease, Limit, RateLimiter
from rl_limits import _script as script
from rl_limits._replies import to_reply
from rl_limits.asgi import RateLimitMiddleware
from test_limiter import outage_amid_keys

SHARED = json.loads((servers.ROOT / "clients/cases/script.json").read_text())
README = (Path(__file__).parents[1] / "README.md").read_text()
NEEDS = "needs the module, but the engine is 'script'"


@pytest.fixture(scope="module", params=servers.NAMES)
def each_plain(request: pytest.FixtureRequest) -> Iterator[Server]:
    with servers.start(request.param, module=False) as server:
        yield server


@pytest.fixture
def plain(each_plain: Server) -> Server:
    """Every server in turn, empty, and without the script."""
    with each_plain.client() as client:
        client.flushall()
        client.script_flush()
    return each_plain


@pytest.fixture(scope="module")
def plain_cluster() -> Iterator[list[Server]]:
    with servers.start_cluster(module=False) as nodes:
        yield nodes


def test_the_package_has_the_script_of_all_languages() -> None:
    assert script.text() == (servers.ROOT / "clients/script/ratelimit.lua").read_text()


def given(case: dict[str, Any]) -> tuple[str, str, list[Any], dict[str, Any]]:
    name = next(name for name in ("check", "peek", "refund", "reset") if name in case)
    words = [case[word] for word in ("units", "rules") if word in case]
    return name, case[name], words, {"cost": case["cost"]} if "cost" in case else {}


@pytest.mark.parametrize("case", SHARED["reports"], ids=lambda case: str(case["rules"]))
def test_a_report_says_what_five_integers_tell(case: dict[str, Any]) -> None:
    report = script.report(to_reply(case["reply"]), Limit("k", case["rules"]), case["cost"])
    own = {"key": "k", "shadow": False}
    assert [{name: getattr(rule, name) for name in rule.__slots__} for rule in report.rules] == [
        {**rule, **own} for rule in [case.get("rule")] if rule
    ]
    assert report.wait_ms == case["reply"][3] and report.key == "k"


@pytest.mark.parametrize("case", SHARED["charges"], ids=lambda case: str(case["rules"]))
def test_charges_follow_from_rules_and_cost(case: dict[str, Any]) -> None:
    found = script.charges(case["rules"], case["cost"])
    assert {str(units): rules for units, rules in found.items()} == case["charges"]


@pytest.mark.parametrize("outage", ["raise", "allow", "deny", "local"])
def test_an_outage_amid_a_check_of_several_keys_charges_none(plain: Server, outage: Any) -> None:
    outage_amid_keys(plain, outage, engine="script")


def needing(limiter: Any) -> dict[str, Callable[[], Any]]:
    pool = [Limit("a", "2/m")]
    return {
        "RL.WAIT": lambda: limiter.wait("a", "2/m", 1),
        "RL.MCHECK": lambda: limiter.check_any(pool),
        "FULL": lambda: limiter.peek_all("a", "2/m"),
        "META": lambda: limiter.check("a", "2/m", meta="who"),
        "RL.SETTLE": lambda: limiter.settle("a", "id"),
        "RL.RENEW": lambda: limiter.renew("a", "id", 1),
        "pause": lambda: limiter.pause("a", 1),
        "RL.RESUME": lambda: limiter.resume("a"),
        "RL.PLAN": lambda: limiter.plan("a", "free"),
        "RL.UNPLAN": lambda: limiter.unplan("a"),
        "RL.SYNC": lambda: limiter.sync("a", 1, "2/m"),
        "follow": lambda: limiter.follow("a", 200, {}),
        "RL.INFO": lambda: limiter.call("RL.INFO", "a"),
        "a range of costs": lambda: limiter.check("a", "2/m", cost=(1, 2)),
        "META ": lambda: limiter.check_all(pool, meta="who"),
        "a range of costs ": lambda: limiter.check_all(pool, cost=(1, 2)),
    }


async def test_calls_that_need_the_module_are_refused_at_once() -> None:
    """There is no server: a command that was sent would be an outage."""
    limiter = RateLimiter(Redis(port=1), engine="script", outage="allow")
    asynchronous = AsyncRateLimiter(AsyncRedis(port=1), engine="script", outage="allow")
    for what, call in needing(limiter).items():
        with pytest.raises(ValueError, match=f"^{what.strip()} {NEEDS}"):
            call()
    for what, call in needing(asynchronous).items():
        with pytest.raises(ValueError, match=f"^{what.strip()} {NEEDS}"):
            await call()
    for made in (lambda: limiter.hold("a", "2/m", ttl=1), lambda: asynchronous.hold("a", "2/m", ttl=1)):
        with pytest.raises(ValueError, match=f"^hold {NEEDS}"):
            made()
    for kind, of in ((Lease, limiter), (AsyncLease, asynchronous)):
        with pytest.raises(ValueError, match=f"^a lease {NEEDS}"):
            kind(of, "a", "2/m")  # type: ignore[arg-type]
    for case in SHARED["refused"]:
        with pytest.raises(ValueError) as raised:
            limiter.check("a", ["5/m", case["rule"]])
        assert str(raised.value) == case["error"]
        with pytest.raises(ValueError, match=NEEDS):
            limiter.refund("a", 1, case["rule"])
        with pytest.raises(ValueError, match=r"needs the module|slots are held"):
            RateLimitMiddleware(None, asynchronous, case["rule"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"^count='failed' {NEEDS}"):
        RateLimitMiddleware(None, asynchronous, "5/m", count="failed")  # type: ignore[arg-type]
    assert limiter.outages == asynchronous.outages == 0


def test_a_storage_of_limits_needs_the_module() -> None:
    from rl_limits.storage import AsyncRateLimitStorage, RateLimitStorage

    for kind, scheme in ((RateLimitStorage, ""), (AsyncRateLimitStorage, "async+")):
        with pytest.raises(ValueError, match=f"a storage of limits {NEEDS}"):
            kind(f"{scheme}ratelimit+redis://localhost", engine="script")  # type: ignore[abstract]


def test_a_client_without_the_rights_is_told_which() -> None:
    told: list[Any] = []
    with servers.start(module=False) as server, server.client() as client:
        client.execute_command("ACL", "SETUSER", "nobody", "on", ">secret", "~*", "-@all", "+hello", "+client")
        rights = ["+eval", "+evalsha", "+get", "+set", "+del", "+time"]
        client.execute_command("ACL", "SETUSER", "somebody", "on", ">secret", "~*", "-@all", "+client", *rights)
        options: Any = {"engine": "script", "password": "secret", "timeout": 5, "on_misconfigured": told.append}
        limiter = RateLimiter.from_url(server.url, username="nobody", outage="allow", **options)
        assert limiter.check("a", "2/m").source == "outage"
        assert "+evalsha" in told[0].advice
        assert RateLimiter.from_url(server.url, username="somebody", **options).check("a", "2/m").source == "server"


def test_the_readmes_first_check_works_without_the_module(plain: Server, capsys: pytest.CaptureFixture[str]) -> None:
    code = README.split("```python\n")[1].split("```")[0]
    assert 'outage="local")' in code
    code = code.replace('outage="local")', 'outage="local", engine="script", timeout=5)')
    exec(code.replace("redis://localhost", plain.url), {})
    assert capsys.readouterr().out.strip() == "allowed 4 0"
    with plain.client() as client:
        assert client.keys() == ["login:42:script"]


def test_a_quota_moves_to_the_module_as_the_document_says(server: Server) -> None:
    page = (servers.ROOT / "docs/migrate.md").read_text()
    code = page.split("## From the script to the module")[1].split("```python\n")[1].split("```")[0]
    names = {"by_script": limiters.of(server, engine="script"), "by_module": limiters.of(server)}
    for cost in (6200, 1):
        names["by_script"].check("quota:42", "fixed:10000/month", cost=cost)
    exec(code, names)
    assert names["by_module"].peek("quota:42", "fixed:10000/month").remaining == 3799
    assert names["by_script"].peek("quota:42", "fixed:10000/month").remaining == 3799


def test_the_asgi_middleware_limits_by_the_script(plain: Server) -> None:
    app = FastAPI()
    limiter = AsyncRateLimiter.from_url(plain.url, engine="script", timeout=5)
    limits = [Limit("ip", ["9/d,name=day", "bucket:9/h,burst=10"]), Limit("user", "2/d,name=user")]
    app.add_middleware(RateLimitMiddleware, limiter=limiter, limits=lambda scope: limits)

    @app.get("/")
    def hello() -> str:
        return "hello"

    with TestClient(app) as client:
        answers = [client.get("/") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["RateLimit-Policy"] == '"day";q=9;w=86400, "user";q=2;w=86400'
    assert answers[0].headers["RateLimit"] == '"day";r=8;t=86400, "user";r=1;t=86400'
    assert answers[2].json()["violated-policies"] == ["user"]
    assert 86_000 < int(answers[2].headers["Retry-After"]) <= 86_400


def test_the_django_middleware_limits_by_the_script(plain: Server) -> None:
    import test_django

    def settings(**more: Any) -> Any:
        own = {"URL": plain.url, "OPTIONS": {"engine": "script", "timeout": 5}, "LIMITS": "2/d", **more}
        return override_settings(RL_LIMITS=own, MIDDLEWARE=test_django.settings.MIDDLEWARE)

    with settings():
        assert [Client().get("/").status_code for _ in range(3)] == [200, 200, 429]
    for more in ({"COUNT": "failed"}, {"LIMITS": "@free"}):
        with settings(**more), pytest.raises(Exception, match=f"RL_LIMITS: .*{NEEDS}"):
            Client().get("/")
    throttle = {"DEFAULT_THROTTLE_RATES": {"anon": "2/min"}, "UNAUTHENTICATED_USER": None}
    with settings(), override_settings(REST_FRAMEWORK=throttle, MIDDLEWARE=[]):
        assert [Client().get("/anon").status_code for _ in range(3)] == [200, 200, 429]


async def test_a_cluster_decides_by_the_script(plain_cluster: list[Server]) -> None:
    port = plain_cluster[0].port
    limits = [Limit("ip:203.0.113.9", "5/d"), Limit("user:42", "2/d")]
    limiter = RateLimiter(RedisCluster(host="127.0.0.1", port=port), engine="script")
    assert [limiter.check(f"user:{i}", "2/d").remaining for i in range(30)] == [1] * 30
    assert [limiter.check_all(limits).allowed for _ in range(3)] == [True, True, False]
    assert limiter.peek("ip:203.0.113.9", "5/d").remaining == 3
    async with AsyncRedisCluster(host="127.0.0.1", port=port) as client:
        asynchronous = AsyncRateLimiter(client, timeout=5, engine="script")
        assert [(await asynchronous.check(f"one:{i}", "2/d")).remaining for i in range(30)] == [1] * 30
        assert not (await asynchronous.check_all(limits)).allowed


def test_threads_may_load_the_script_at_once(plain: Server) -> None:
    limiter = limiters.of(plain, engine="script")
    threads = [threading.Thread(target=limiter.check, args=("a", "100/d")) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limiter.peek("a", "100/d").remaining == 80
